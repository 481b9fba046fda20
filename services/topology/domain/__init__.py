"""Pure algorithms: no I/O, no clock, no global randomness."""

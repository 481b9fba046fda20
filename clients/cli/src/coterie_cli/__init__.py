"""The tools around the device SDK: the command `coterie`, demos, fleets, a platform on this machine, certificates."""

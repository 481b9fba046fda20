"""Sessions, sign-in and browser policy."""

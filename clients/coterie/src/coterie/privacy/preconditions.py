"""Checks shared by the privacy mechanisms: each returns the value it accepts and names the value it refuses."""

from __future__ import annotations


def check_delta(delta: float) -> float:
    """Return a δ in (0, 1); ValueError for any other."""
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}; use less than 1/number of devices")
    return delta


def check_positive(name: str, value: float) -> float:
    """Return a value above 0, infinity included; ValueError for any other."""
    if not value > 0.0:
        raise ValueError(f"{name} must be positive, got {value}")
    return value


def check_not_negative(name: str, value: float) -> float:
    """Return a value of at least 0, infinity included; ValueError for any other."""
    if not value >= 0.0:
        raise ValueError(f"{name} must be at least 0, got {value}")
    return value

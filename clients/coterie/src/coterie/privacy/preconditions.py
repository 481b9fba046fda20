"""Refusals shared by the privacy mechanisms: each returns the value it accepts and names the one it does not."""

from __future__ import annotations


def check_delta(delta: float) -> float:
    """The value itself if it lies in (0, 1), else ValueError."""
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}; use less than 1/number of devices")
    return delta


def check_positive(name: str, value: float) -> float:
    """The value itself if it is above 0 (infinity is legal), else ValueError."""
    if not value > 0.0:
        raise ValueError(f"{name} must be positive, got {value}")
    return value


def check_not_negative(name: str, value: float) -> float:
    """The value itself if it is at least 0 (infinity is legal), else ValueError."""
    if not value >= 0.0:
        raise ValueError(f"{name} must be at least 0, got {value}")
    return value


def check_rate(rate: float) -> float:
    """The value itself if it is a sampling probability in (0, 1], else ValueError."""
    if not 0.0 < rate <= 1.0:
        raise ValueError(f"sampling rate must lie in (0, 1], got {rate}; it is the chance that one record is used")
    return rate

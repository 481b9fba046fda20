"""Deadlines of long polls."""

from __future__ import annotations

from services.kit.runtime.clock import Clock

MAX_WAIT_SECONDS = 30.0


def latest(clock: Clock, wait_seconds: float) -> float:
    """Return when a long poll must answer: at most `MAX_WAIT_SECONDS` from now."""
    return clock.now() + min(max(wait_seconds, 0.0), MAX_WAIT_SECONDS)

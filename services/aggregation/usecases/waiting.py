"""How long a call may wait for something to tell."""

from __future__ import annotations

from services.kit.runtime.clock import Clock

MAX_WAIT_SECONDS = 30.0


def latest(clock: Clock, wait_seconds: float) -> float:
    """When to answer a caller that would wait so long, with or without news."""
    return clock.now() + min(max(wait_seconds, 0.0), MAX_WAIT_SECONDS)

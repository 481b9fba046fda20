"""How fast a process answers: the middle and the slowest of its last calls."""

from __future__ import annotations

import math
from collections import deque

WINDOW_CALLS = 1_000


class LatencyWindow:
    """Seconds that the last calls took. Those that wait for something to happen are not to be added."""

    def __init__(self, kept: int = WINDOW_CALLS) -> None:
        self._seconds: deque[float] = deque(maxlen=kept)

    def add(self, seconds: float) -> None:
        """One more call."""
        self._seconds.append(seconds)

    def summary(self) -> dict[str, float]:
        """How many calls are known, and what half and 95 in 100 of them took at most; 0 when there are none."""
        ordered = sorted(self._seconds)
        return {
            "calls": float(len(ordered)),
            "p50_seconds": _quantile(ordered, 0.5),
            "p95_seconds": _quantile(ordered, 0.95),
        }


def _quantile(ordered: list[float], share: float) -> float:
    """The least of the values that so large a share does not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else 0.0


LATENCY = LatencyWindow()
"""That of this process."""

"""p50 and p95 latency of recent calls."""

from __future__ import annotations

import math
from collections import deque

WINDOW_CALLS = 1_000


class LatencyWindow:
    """Durations of the most recent calls, in seconds. Do not add calls that wait on purpose."""

    def __init__(self, size: int = WINDOW_CALLS) -> None:
        self._seconds: deque[float] = deque(maxlen=size)

    def add(self, seconds: float) -> None:
        """Add one call."""
        self._seconds.append(seconds)

    def summary(self) -> dict[str, float]:
        """Number of calls, and their p50 and p95 latency; 0 without calls."""
        ordered = sorted(self._seconds)
        return {
            "calls": float(len(ordered)),
            "p50_seconds": _quantile(ordered, 0.5),
            "p95_seconds": _quantile(ordered, 0.95),
        }


def _quantile(ordered: list[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else 0.0


LATENCY = LatencyWindow()
"""The window of this process."""

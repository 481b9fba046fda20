"""Time as an argument: services ask a clock, tests hand in their own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Something that knows what time it is."""

    def now(self) -> float:
        """Unix seconds, UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

"""Device half of shifts: train as in a star."""

from __future__ import annotations

from typing import ClassVar

from coterie.strategies.star import Star


class Shifts(Star):
    serves: ClassVar[tuple[tuple[str, str, str], ...]] = (("shifts", "none", "none"),)
    masks: ClassVar[bool] = False

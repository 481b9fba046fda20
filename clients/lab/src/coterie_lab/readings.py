"""What a trial measured: one number under a figure's name, for one series and, where there is one, one x."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Reading:
    """One measured number.

    Attributes:
        figure: what was measured, for instance "accuracy".
        series: whose it is, for instance "SCFL" or "S1".
        x: where along the horizontal axis; NaN where the figure has none.
        value: the number.
    """

    figure: str
    series: str
    x: float
    value: float


@dataclass(frozen=True, slots=True)
class Seeded:
    """All readings of one seed, over all cells that were measured with it."""

    seed: int
    readings: tuple[Reading, ...]

    def value(self, figure: str, series: str, x: float | None = None) -> float | None:
        """The mean of the readings with this name (one, as a rule), or None where there is none."""
        result = [value for at, value in self.curve(figure, series) if x is None or math.isclose(at, x)]
        return sum(result) / len(result) if result else None

    def curve(self, figure: str, series: str) -> list[tuple[float, float]]:
        """(x, value) of a series, by x."""
        chosen = (reading for reading in self.readings if reading.figure == figure and reading.series == series)
        return sorted((item.x, item.value) for item in chosen)


def by_seed(rows: Sequence[tuple[int, Reading]]) -> list[Seeded]:
    """Readings gathered by seed, ascending."""
    result: dict[int, list[Reading]] = {}
    for seed, reading in rows:
        result.setdefault(seed, []).append(reading)
    return [Seeded(seed, tuple(result[seed])) for seed in sorted(result)]

"""A paper's claims as data, and their verdicts computed from readings with the spread over seeds.

Every claim turns one seed's readings into a margin: positive where it holds, and by how much. The verdict looks at the
mean margin and its 95 % interval over seeds (Student's t): all above zero is *reproduced*, all below *differs*; what
lies between, or was not measured, is *not testable* with these seeds. A margin of exactly zero in every seed holds:
claims say "at least" and "at most".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations, pairwise
from typing import Literal, Protocol

import numpy as np
from scipy.stats import t as student

from coterie_lab.readings import Seeded

CONFIDENCE = 0.95
MONOTONE = 0.9
"""A curve rises (or falls) when so much more of its pairs of points go that way than the other."""
ROUNDING = 1e-9
"""Values no further apart than this, relative to the larger, are the same."""


class Verdict(Enum):
    """What the seeds say of a claim."""

    REPRODUCED = "reproduced"
    DIFFERS = "differs"
    NOT_TESTABLE = "not testable"


class Claim(Protocol):
    """One sentence of a paper that readings can decide."""

    @property
    def says(self) -> str:
        """The claim in words, with the paper's figure."""
        ...

    def margin(self, seeded: Seeded) -> float | None:
        """By how much it holds for one seed; None where it was not measured."""
        ...


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A figure is at least so much."""

    says: str
    figure: str
    series: str
    least: float
    x: float | None = None

    def margin(self, seeded: Seeded) -> float | None:
        """Measured minus claimed."""
        value = seeded.value(self.figure, self.series, self.x)
        return None if value is None else value - self.least


@dataclass(frozen=True, slots=True)
class AtMost:
    """A figure is at most so much."""

    says: str
    figure: str
    series: str
    most: float
    x: float | None = None

    def margin(self, seeded: Seeded) -> float | None:
        """Claimed minus measured."""
        value = seeded.value(self.figure, self.series, self.x)
        return None if value is None else self.most - value


@dataclass(frozen=True, slots=True)
class Ordered:
    """Series lie in this order, lowest first, at every x that all of them have (up to `slack`)."""

    says: str
    figure: str
    series: tuple[str, ...]
    slack: float = 0.0

    def margin(self, seeded: Seeded) -> float | None:
        """The smallest step from one series to the next, over all x."""
        curves = [dict(seeded.curve(self.figure, name)) for name in self.series]
        if not all(curves):
            return None
        shared = [x for x in curves[0] if all(_has(curve, x) for curve in curves[1:])]
        steps = [_rise(_at(low, x), _at(high, x)) + self.slack for low, high in pairwise(curves) for x in shared]
        return min(steps) if steps else None


@dataclass(frozen=True, slots=True)
class Monotone:
    """A curve rises or falls with x: of its pairs of points that differ, 95 % go that way (a gamma of 0.9).

    Pairs that are the same say nothing, so that a curve may level off; one without any change neither rises nor falls.
    """

    says: str
    figure: str
    series: tuple[str, ...]
    direction: Literal["rises", "falls"]

    def margin(self, seeded: Seeded) -> float | None:
        """The weakest series' (rising − falling)/(rising + falling) pairs beyond 0.9."""
        margins = []
        for name in self.series:
            values = [value for _, value in seeded.curve(self.figure, name)]
            if len(values) < 3:
                return None
            steps = [_rise(early, late) for early, late in combinations(values, 2)]
            rising, falling = sum(step > 0 for step in steps), sum(step < 0 for step in steps)
            gamma = (rising - falling) / (rising + falling) if rising + falling else 0.0
            margins.append((gamma if self.direction == "rises" else -gamma) - MONOTONE)
        return min(margins)


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with its verdict: mean margin, half the width of its interval, and how many seeds measured it."""

    claim: Claim
    verdict: Verdict
    margin: float
    spread: float
    seeds: int


def judge(claim: Claim, seeds: Sequence[Seeded]) -> Judged:
    """The verdict of all seeds. One seed decides nothing by itself, except by measuring nothing at all."""
    margins = np.array([m for m in (claim.margin(seed) for seed in seeds) if m is not None], dtype=np.float64)
    if len(margins) < 2 or not np.isfinite(margins).all():
        mean = float(margins.mean()) if len(margins) and np.isfinite(margins).all() else math.nan
        return Judged(claim, Verdict.NOT_TESTABLE, mean, math.nan, len(margins))
    mean = float(margins.mean())
    spread = float(student.ppf(0.5 + CONFIDENCE / 2, len(margins) - 1) * margins.std(ddof=1) / math.sqrt(len(margins)))
    if mean - spread >= 0:
        verdict = Verdict.REPRODUCED
    elif mean + spread < 0:
        verdict = Verdict.DIFFERS
    else:
        verdict = Verdict.NOT_TESTABLE
    return Judged(claim, verdict, mean, spread, len(margins))


def _rise(low: float, high: float) -> float:
    return 0.0 if math.isclose(low, high, rel_tol=ROUNDING) else high - low


def _has(curve: dict[float, float], x: float) -> bool:
    return any(_same(x, other) for other in curve)


def _at(curve: dict[float, float], x: float) -> float:
    return next(value for other, value in curve.items() if _same(x, other))


def _same(one: float, other: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other)

"""What the platform can tell of updates by their norms: which are too long, next to nothing, or stand out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from coterie.learning.local_steps import CHANCE_OF_INJUSTICE

FEWEST = 5
DEVIATIONS = 5.0
_LEAST_SPREAD = 0.05
_TO_DEVIATION = 1.4826
_ROUNDING = 1e-3


def noised_norm(bound: float, multiplier: float, elements: int) -> float:
    """What the norm of an update clipped to S, with noise of σS on each of d numbers, stays within.

    |Δ| ≤ S(1 + σ(√d + t)) but with chance exp(−t²/2) at most.
    """
    tail = math.sqrt(elements) + math.sqrt(2.0 * math.log(1.0 / CHANCE_OF_INJUSTICE))
    return bound * (1.0 + multiplier * tail) * (1.0 + _ROUNDING)


def usual_norm(norms: Iterable[float]) -> float:
    """Return the median of the norms above zero; 0 for none. Of two, neither is beyond twice their median."""
    positive = [norm for norm in norms if norm > 0.0]
    return float(np.median(positive)) if positive else 0.0


class Odd(NamedTuple):
    """A value that stands out: by how many deviations from which median."""

    value: float
    deviations: float
    median: float


def stand_out(values: Mapping[str, float]) -> dict[str, Odd]:
    """Those far from the median, measured by the median distance from it, which a minority cannot move far."""
    if len(values) < FEWEST:
        return {}
    numbers = np.array(list(values.values()))
    median = float(np.median(numbers))
    spread = max(_TO_DEVIATION * float(np.median(np.abs(numbers - median))), _LEAST_SPREAD * median)
    return {
        name: Odd(value, abs(value - median) / spread, median)
        for name, value in values.items()
        if abs(value - median) > DEVIATIONS * spread
    }

"""What the platform can tell of an update's content: its norm, whether it is nothing, and whether it stands out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from coterie.local_steps import CHANCE_OF_INJUSTICE
from services.aggregation.domain.accumulator import WINDOW, Read
from services.aggregation.domain.layout import DTYPES, Layout

FEWEST = 5
DEVIATIONS = 5.0
_LEAST_SPREAD = 0.05
_TO_DEVIATION = 1.4826
_ROUNDING = 1e-3


def norm_of(layout: Layout, read: Read) -> float:
    """L2 norm of a stored update, a window at a time; NaN or infinite when it holds such values."""
    squares = 0.0
    for tensor in layout.tensors:
        dtype = DTYPES[tensor.dtype]
        for start in range(0, tensor.elements, WINDOW):
            count = min(WINDOW, tensor.elements - start)
            piece = np.frombuffer(read(tensor.start + start * dtype.itemsize, count * dtype.itemsize), dtype)
            values = piece.astype(np.float64)
            squares += float(values @ values)
    return math.sqrt(squares)


def is_zero(read: Read, start: int, stop: int) -> bool:
    """Whether all bytes from `start` to `stop` are zero."""
    return not any(
        np.frombuffer(read(place, min(WINDOW, stop - place)), np.uint8).any() for place in range(start, stop, WINDOW)
    )


def noised_norm(bound: float, multiplier: float, elements: int) -> float:
    """What the norm of an update clipped to S, with noise of σS on each of d numbers, stays within.

    |Δ| ≤ S(1 + σ(√d + t)) but with chance exp(−t²/2) at most.
    """
    tail = math.sqrt(elements) + math.sqrt(2.0 * math.log(1.0 / CHANCE_OF_INJUSTICE))
    return bound * (1.0 + multiplier * tail) * (1.0 + _ROUNDING)


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

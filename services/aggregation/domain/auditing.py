"""Whether a sum that somebody else told is the sum of the updates it is said to be of.

Sums are whole numbers, so a spot is either right to the bit or wrong. Which spots are looked at is drawn after the sum
was told: who changed a share f of them is found out with chance 1 − (1 − f)^n by n spots; a small model is looked at
whole. What is not found out is bounded: |Σ wᵢuᵢ| ≤ Σ wᵢ|uᵢ|, and the norms |uᵢ| are the platform's own figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from services.aggregation.domain.accumulator import Read
from services.aggregation.domain.layout import DTYPES, Layout

SPOT = 256
"""Numbers looked at in one place."""
SHARE = 1 / 16
"""Of a large sum that is looked at."""
LEAST = 1 << 14
"""Numbers looked at in any sum, if it has as many."""
_SLACK = 1.0 + 1e-9


def spots(elements: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Places [start, stop) to look at, in order; all of a small sum."""
    wanted = max(LEAST, math.ceil(elements * SHARE))
    places = math.ceil(elements / SPOT)
    if wanted >= elements:
        return [(start, min(start + SPOT, elements)) for start in range(0, elements, SPOT)]
    chosen = np.sort(rng.choice(places, size=math.ceil(wanted / SPOT), replace=False))
    return [(int(place) * SPOT, min((int(place) + 1) * SPOT, elements)) for place in chosen]


def longest(terms: Iterable[tuple[float, float]], scale: int, elements: int) -> float:
    """The largest norm of a sum in units of 2^-scale, of updates given by (weight, norm).

    Each of a term's numbers is rounded to a whole one: half a unit at most, √d/2 of the vector.
    """
    listed = list(terms)
    exact = math.fsum(weight * norm for weight, norm in listed) * 2.0**scale
    return exact * _SLACK + len(listed) * math.sqrt(elements) / 2.0


def norm_of(pieces: Iterator[npt.NDArray[np.int64]]) -> float:
    """The norm of a sum in units of 2^-scale."""
    return math.sqrt(math.fsum(float(np.square(piece.astype(np.float64)).sum()) for piece in pieces))


def terms_at(
    base: Layout, theirs: Layout, read: Read, weight: float, scale: int, start: int, stop: int
) -> npt.NDArray[np.int64]:
    """What an update adds to the numbers [start, stop) of a sum, as the accumulator rounds it."""
    by_name = {tensor.name: tensor for tensor in theirs.tensors}
    found = np.zeros(stop - start, np.int64)
    for tensor in base.tensors:
        low, high = max(start, tensor.offset), min(stop, tensor.offset + tensor.elements)
        if low >= high:
            continue
        dtype = DTYPES[by_name[tensor.name].dtype]
        first = by_name[tensor.name].start + (low - tensor.offset) * dtype.itemsize
        values = np.frombuffer(read(first, (high - low) * dtype.itemsize), dtype)
        scaled = np.multiply(values, weight * 2.0**scale, dtype=np.float64)
        found[low - start : high - start] = np.rint(scaled).astype(np.int64)
    return found

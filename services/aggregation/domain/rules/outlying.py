"""How far updates lie from what a rule made of them, and when that says something of a device.

Being set aside says nothing: Krum excludes nearly all updates. Lying far outside all others in several rounds running
does. A device with unusual data may do so honestly, so it takes three rounds, and then counts as one bad round each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from services.aggregation.domain.model_steps import Flow
from services.aggregation.domain.rules.rows import Rows, Vector, windows

DISTANCE = "update_distance"
"""Metric of an update that the platform measures: its distance from the result, in medians of all such distances."""
FAR = 5.0
ROUNDS = 3


def distances_from(rows: Rows, result: Iterable[Vector]) -> Vector:
    """Distance of every row from the result; one pass."""
    flow, squared = Flow(result), np.zeros(rows.count)
    for start, stop in windows(rows):
        values = rows.read(start, stop)
        values -= flow.take(stop - start)
        squared += np.einsum("ij,ij->i", values, values)
    return np.sqrt(squared)


def multiples(distances: Vector) -> list[float]:
    """Distances as multiples of their median; all 0 where most updates are the result itself."""
    middle = float(np.median(distances))
    return [float(distance) / middle for distance in distances] if middle > 0 else [0.0] * len(distances)


def is_outlying(rounds: Sequence[Mapping[str, float]]) -> bool:
    """Whether a device's metrics of its last rounds, newest first, show it far outside in each of them."""
    last = rounds[:ROUNDS]
    return len(last) == ROUNDS and all(metrics.get(DISTANCE, 0.0) > FAR for metrics in last)

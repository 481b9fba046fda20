"""Matching the two ends' reports of one meeting: a good report counts only with the other end's. Spec §1.3a.

Reports match when they are of the same pair, by different ends, and their times lie within the window. Each report is
used once. A new report takes the waiting one nearest in time; among equally near ones, the first recorded.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.trust.domain.graph import Floats, Integers


@dataclass(frozen=True, slots=True)
class Reported:
    """Good reports of one side, column by column: pair, time, duration; `numbers` increase in order of recording."""

    numbers: Integers
    pairs: Integers
    at: Floats
    durations_seconds: Floats

    def __len__(self) -> int:
        return len(self.pairs)

    @classmethod
    def of(
        cls, numbers: npt.ArrayLike, pairs: npt.ArrayLike, at: npt.ArrayLike, durations_seconds: npt.ArrayLike
    ) -> Reported:
        """Build from lists."""
        return cls(
            np.asarray(numbers, dtype=np.int64),
            np.asarray(pairs, dtype=np.int64),
            np.asarray(at, dtype=np.float64),
            np.asarray(durations_seconds, dtype=np.float64),
        )


def matches(new: Reported, waiting: Reported, window_seconds: float) -> Integers:
    """Return for each new report, in order, the index of the waiting one it confirms, or −1 if it has to wait.

    O((new + waiting) log waiting), whatever the number of reports per pair.
    """
    result = np.full(len(new), -1, dtype=np.int64)
    by_pair: dict[int, list[tuple[float, int, int]]] = {}
    columns = zip(waiting.pairs.tolist(), waiting.at.tolist(), waiting.numbers.tolist(), strict=True)
    for k, (pair, at, number) in enumerate(columns):
        by_pair.setdefault(pair, []).append((at, number, k))
    for several in by_pair.values():
        several.sort()
    for k, (pair, moment) in enumerate(zip(new.pairs.tolist(), new.at.tolist(), strict=True)):
        several = by_pair.get(pair, [])
        place = _nearest(several, moment)
        if place is not None and abs(several[place][0] - moment) <= window_seconds:
            result[k] = several.pop(place)[2]
    return result


def _nearest(several: list[tuple[float, int, int]], moment: float) -> int | None:
    """Return the place of the report nearest to `moment` among those in order of time and number."""
    after = bisect_left(several, (moment, -1, -1))
    places = [after] if after < len(several) else []
    if after:
        places.append(bisect_left(several, (several[after - 1][0], -1, -1)))  # the first report of that time
    return min(places, key=lambda place: (abs(several[place][0] - moment), several[place][1]), default=None)

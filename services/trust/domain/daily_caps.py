"""How much of each report counts when there are many: influence saturates, per pair and day and per reporter and day.
Spec §1.3a.

A day is one of UTC, a unit one interaction of full duration. What the platform witnessed to be good is measured apart
from meetings, so that many rounds do not use up the day of those who also met; it is bounded by its cap anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.trust.domain.graph import Floats, Integers
from services.trust.domain.parameters import DAY_SECONDS

MET, WITNESSED, BAD = 0, 1, 2
"""Sorts of evidence that fill a pair's day apart from each other."""
MOST_REPORTS = 10
"""Bad reports of one end that are looked at in a pair and day, in days' measures: however short, they raise K′."""


@dataclass(frozen=True, slots=True)
class Used:
    """What counts already, an entry for each (pair, day, sort): units, and how many reports of the present reporter."""

    units: Floats
    reports: Integers


def day_of(at: Floats) -> Integers:
    """The day a moment lies in."""
    return np.floor(np.asarray(at) / DAY_SECONDS).astype(np.int64)


def sorts(positive: npt.NDArray[np.bool_], witnessed: npt.NDArray[np.bool_]) -> Integers:
    """The sort of each piece of evidence."""
    return np.where(positive, np.where(witnessed, WITNESSED, MET), BAD).astype(np.int64)


def shares_of_day(days: Integers, units: Floats, bounded: npt.NDArray[np.bool_], used: Used, most: float) -> Floats:
    """How much of each piece counts, in [0, 1]: a day takes `most` units, in the order given.

    days: which entry of `used` a piece belongs to. units: its weight in [0, 1]. bounded: a report of an end against
    the other, of which only so many are looked at. The sum that counts is min(most, Σ units) in any order; pieces of no
    length use nothing up, so that no flood of them keeps out those of the other end.
    """
    order = np.argsort(days, kind="stable")
    before = np.empty(len(days))
    before[order] = _before(units[order], days[order])
    room = np.maximum(most - used.units[days] - before, 0.0)
    shares = np.where(units > 0, np.minimum(1.0, room / np.where(units > 0, units, 1.0)), (room > 0).astype(np.float64))
    if bounded.any():
        place = np.empty(len(days))
        place[order] = _before(bounded[order].astype(np.float64), days[order])
        shares[bounded & (used.reports[days] + place >= MOST_REPORTS * most)] = 0.0
    return shares


def newest_that_count(at: Floats, numbers: Integers, units: Floats, most: float) -> npt.NDArray[np.bool_]:
    """Which of one reporter's bad reports of one day count: from the newest back, as many as fit into `most` units."""
    order = np.lexsort((-numbers, -at))
    retained = np.empty(len(at), dtype=np.bool_)
    retained[order] = np.cumsum(units[order]) <= most * (1 + 1e-12)
    return retained


def _before(values: Floats, groups: Integers) -> Floats:
    """Sums of what stands before each value in its group; groups in order."""
    if not len(values):
        return np.zeros(0)
    sums = np.cumsum(values) - values
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
    sizes = np.diff(np.r_[starts, len(groups)])
    # Differences of long sums keep rounding of the whole; weights are at most 1, so 1e-12 of a unit at worst.
    return np.maximum(sums - np.repeat(sums[starts], sizes), 0.0)

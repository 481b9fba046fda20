"""Daily caps on evidence: how much of each report counts, per pair and day and per reporter and day. Spec §1.3a.

Days are UTC days; a unit is one interaction of full duration. Good evidence that the platform witnessed has a separate
cap, so that many rounds do not use up the day of pairs that also met; `witness_cap` bounds its effect anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.trust.domain.graph import Floats, Integers
from services.trust.domain.parameters import DAY_SECONDS

MET, WITNESSED, BAD = 0, 1, 2
"""Kinds of evidence with separate daily caps per pair."""
MOST_REPORTS = 10
"""Bad reports of one end considered per pair and day, in multiples of the day's cap: even short ones raise K′."""


@dataclass(frozen=True, slots=True)
class Used:
    """What counts already, an entry for each (pair, day, kind): units, and number of the present reporter's reports."""

    units: Floats
    reports: Integers


def day_of(at: Floats) -> Integers:
    """The day of each time."""
    return np.floor(np.asarray(at) / DAY_SECONDS).astype(np.int64)


def sorts(positive: npt.NDArray[np.bool_], witnessed: npt.NDArray[np.bool_]) -> Integers:
    """The kind of each piece of evidence."""
    return np.where(positive, np.where(witnessed, WITNESSED, MET), BAD).astype(np.int64)


def shares_of_day(days: Integers, units: Floats, bounded: npt.NDArray[np.bool_], used: Used, most: float) -> Floats:
    """How much of each piece counts, in [0, 1]: a day takes `most` units, in the order given.

    days: index into `used` of each piece. units: its weight in [0, 1]. bounded: whether it is a report of one end
    against the other, of which a day considers `MOST_REPORTS` × `most`. The sum that counts is min(most, Σ units) in
    any order; pieces of zero length use no room, so a flood of them does not crowd out the other end's.
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
    """Which of one reporter's bad reports of a day count: the newest, as many as fit into `most` units."""
    order = np.lexsort((-numbers, -at))
    retained = np.empty(len(at), dtype=np.bool_)
    retained[order] = np.cumsum(units[order]) <= most * (1 + 1e-12)
    return retained


def _before(values: Floats, groups: Integers) -> Floats:
    """Exclusive prefix sums within each group; groups in order."""
    if not len(values):
        return np.zeros(0)
    sums = np.cumsum(values) - values
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
    sizes = np.diff(np.r_[starts, len(groups)])
    # Differences of long sums keep the rounding of the whole: at most 1e-12 of a unit, because weights are at most 1.
    return np.maximum(sums - np.repeat(sums[starts], sizes), 0.0)

"""Which carriers met: an interval join of stays that overlap in space and time, window by window."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy  # loads its submodules on first use

from services.trust.domain.graph import Floats, Integers
from services.trust.domain.population import Stays

WINDOW_SECONDS = 3 * 3_600.0
"""Stays are joined three hours at a time, so that memory is bounded by a window's stays."""
CHUNK = 50_000
"""Stays compared with static places per block."""


@dataclass(frozen=True, slots=True)
class Meetings:
    """Carriers `a[k]` and `b[k]` were within reach of each other from `start[k]` to `stop[k]` (seconds)."""

    a: Integers
    b: Integers
    start: Floats
    stop: Floats

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True, slots=True)
class Encounters:
    """How often each pair (a, b) met; a pair occurs once."""

    a: Integers
    b: Integers
    times: Integers


def meetings_within(stays: Stays, radius_metres: float, least_seconds: float = 0.0) -> Meetings:
    """Return every meeting of two different carriers in one set of stays, a < b, of at least `least_seconds`."""
    return _join(stays, None, radius_metres, least_seconds)


def meetings_between(ones: Stays, others: Stays, radius_metres: float, least_seconds: float = 0.0) -> Meetings:
    """Return every meeting of a carrier of `ones` (a) with one of `others` (b), of at least `least_seconds`."""
    return _join(ones, others, radius_metres, least_seconds)


def spaced_encounters(meetings: Meetings, interval_seconds: float) -> Encounters:
    """Count each pair's meetings, where the next must start `interval_seconds` after the last counted one ended.

    Greedy from the earliest, which maximises the count. All pairs advance together, one binary search per step.
    """
    if not len(meetings):
        return Encounters(meetings.a, meetings.b, np.zeros(0, dtype=np.int64))
    order = np.lexsort((meetings.start, meetings.b, meetings.a))
    a, b, start, stop = meetings.a[order], meetings.b[order], meetings.start[order], meetings.stop[order]
    fresh = np.concatenate(([True], (a[1:] != a[:-1]) | (b[1:] != b[:-1])))
    pair, first = np.cumsum(fresh) - 1, np.flatnonzero(fresh)
    origin = start.min()
    span = stop.max() - origin + interval_seconds + 1.0  # each pair has its own stretch of one axis, without overlap
    axis = pair * span + (start - origin)
    times, active, cursor = np.zeros(len(first), dtype=np.int64), np.arange(len(first)), first
    while len(active):
        times[active] += 1
        following = np.searchsorted(axis, active * span + (stop[cursor] - origin + interval_seconds), side="left")
        same = following < len(axis)
        same[same] = pair[following[same]] == active[same]
        active, cursor = active[same], following[same]
    return Encounters(a[first], b[first], times)


def visits(stays: Stays, places: Floats, radius_metres: float) -> Encounters:
    """Count the stays of each carrier (b) within reach of each of the `places` (a, as row numbers)."""
    rows, carriers = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    if len(places):
        tree = scipy.spatial.KDTree(places)
        for low in range(0, len(stays), CHUNK):
            near = scipy.spatial.KDTree(stays.places[low : low + CHUNK]).sparse_distance_matrix(
                tree, radius_metres, output_type="ndarray"
            )
            rows.append(near["j"].astype(np.int64))
            carriers.append(stays.carriers[low + near["i"]])
    names, numbers = np.unique(np.concatenate(carriers), return_inverse=True)
    width = max(1, len(names))
    result, times = np.unique(np.concatenate(rows) * width + numbers, return_counts=True)
    return Encounters(result // width, names[result % width], times.astype(np.int64))


def _join(ones: Stays, others: Stays | None, radius: float, least_seconds: float) -> Meetings:
    right = ones if others is None else others
    none = np.zeros(0, dtype=np.int64)
    parts = [Meetings(none, none, np.zeros(0), np.zeros(0))]
    if len(ones) and len(right):
        begin, end = min(ones.start.min(), right.start.min()), max(ones.stop.max(), right.stop.max())
        for k in range(max(1, math.ceil((end - begin) / WINDOW_SECONDS))):
            low, high = begin + k * WINDOW_SECONDS, begin + (k + 1) * WINDOW_SECONDS
            parts.append(_join_window(ones, others, radius=radius, least_seconds=least_seconds, low=low, high=high))
    return Meetings(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("a", "b", "start", "stop")))


def _join_window(
    ones: Stays, others: Stays | None, radius: float, least_seconds: float, low: float, high: float
) -> Meetings:
    """Return meetings that start in [low, high); the window of the start finds longer ones."""
    left = _present(ones, low, high)
    right, i, j = ones, left, left
    if others is None:
        near = (
            scipy.spatial.KDTree(ones.places[left]).query_pairs(radius, output_type="ndarray")
            if len(left)
            else np.zeros((0, 2), int)
        )
        i, j = left[near[:, 0]], left[near[:, 1]]
    else:
        right, there = others, _present(others, low, high)
        if not len(left) or not len(there):
            i = j = np.zeros(0, dtype=np.int64)
        else:
            table = scipy.spatial.KDTree(ones.places[left]).sparse_distance_matrix(
                scipy.spatial.KDTree(others.places[there]), radius, output_type="ndarray"
            )
            i, j = left[table["i"]], there[table["j"]]
    start = np.maximum(ones.start[i], right.start[j])
    stop = np.minimum(ones.stop[i], right.stop[j])
    a, b = ones.carriers[i], right.carriers[j]
    retained = (stop > start) & (stop - start >= least_seconds) & (start >= low) & (start < high) & (a != b)
    a, b = a[retained], b[retained]
    if others is None:
        a, b = np.minimum(a, b), np.maximum(a, b)
    return Meetings(a, b, start[retained], stop[retained])


def _present(stays: Stays, low: float, high: float) -> Integers:
    return np.flatnonzero((stays.start < high) & (stays.stop > low))

"""A batch of reports: how much of each counts as evidence, and what it changes of earlier reports.

A good report needs the other end's, a bad one counts alone, and both have daily caps. Spec §1.3a.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from services.trust.domain import daily_caps
from services.trust.domain.confirmation import Reported, matches
from services.trust.domain.daily_caps import Used
from services.trust.domain.evidence import Pieces
from services.trust.domain.graph import Floats, Integers
from services.trust.domain.parameters import DAY_SECONDS, EvidenceRule
from services.trust.domain.records import Basis

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """Reports of one reporter, column by column.

    pairs: numbers of their pairs. basis: why each counts (`Basis`). seconds, moments: of the evidence; for
    a meeting that both ends reported, the shorter duration and earlier time. shares: how much counts; 0 = not (yet).
    confirms: number of the waiting report that it confirms, or 0. carried: that report stores the evidence.
    """

    pairs: Integers
    positive: npt.NDArray[np.bool_]
    durations_seconds: Floats
    at: Floats
    basis: npt.NDArray[np.str_]
    seconds: Floats
    moments: Floats
    shares: Floats
    confirms: Integers
    carried: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def unconfirmed(self) -> int:
        """Number of reports that wait for the other end's."""
        return int(np.count_nonzero(self.basis == Basis.WAITING))

    def pieces(self) -> Pieces:
        """The evidence of the batch; pairs by number."""
        witnessed = self.basis == Basis.PLATFORM
        counting = self.shares > 0
        return Pieces(
            pairs=self.pairs,
            positive=self.positive,
            durations_seconds=self.seconds,
            at=self.moments,
            witnessed=witnessed,
            shares=self.shares,
        ).at_rows(counting)

    def changes(self) -> list[Row]:
        """Changes of waiting reports: basis, share, seconds and number."""
        done = self.confirms > 0
        basis = np.where(self.carried, Basis.BOTH.value, Basis.HALF.value)[done].tolist()
        shares = np.where(self.carried, self.shares, 0.0)[done].tolist()
        seconds = np.where(self.carried, self.seconds, 0.0)[done].tolist()
        return list(zip(basis, shares, seconds, self.confirms[done].tolist(), strict=True))

    def standing(self) -> tuple[list[str], list[float], list[float]]:
        """Basis, share and seconds of each report as stored."""
        basis = np.where(self.carried, Basis.HALF.value, self.basis)
        retained = np.where(self.carried, 0.0, self.shares), np.where(self.carried, 0.0, self.seconds)
        return basis.tolist(), retained[0].tolist(), retained[1].tolist()


def build_draft(
    pairs: Integers, positive: npt.NDArray[np.bool_], durations_seconds: Floats, at: Floats, source: Basis
) -> Draft:
    """Build a draft. `source` is PLATFORM or ADMIN, or ONE for a device, whose good reports wait."""
    size = len(pairs)
    waits = positive & (source is Basis.ONE)
    basis = np.where(waits, Basis.WAITING.value, source.value)
    none = np.zeros(size, dtype=np.int64)
    shares = np.where(waits, 0.0, 1.0)
    seconds = np.where(waits, 0.0, durations_seconds)
    return Draft(
        pairs=pairs,
        positive=positive,
        durations_seconds=durations_seconds,
        at=at,
        basis=basis,
        seconds=seconds,
        moments=at,
        shares=shares,
        confirms=none,
        carried=np.zeros(size, np.bool_),
    )


def confirm(draft: Draft, waiting: Sequence[Row], reporter: int, now: float, rule: EvidenceRule) -> Draft:
    """Match the draft's good reports with waiting ones: rows of number, reporter, pair, time, duration.

    Reports too late for their meeting confirm nothing. The number of waiting reports per end, pair and day is
    bounded; excess ones do not wait, so the cost of a match does not grow with a flood of reports.
    """
    good = np.flatnonzero((draft.basis == Basis.WAITING) & (draft.at >= now - rule.confirm_seconds))
    others = [row for row in waiting if row[1] != reporter]
    numbers, _, pairs, at, durations = zip(*others, strict=True) if others else ((), (), (), (), ())
    theirs = Reported.of(numbers, pairs, at, durations)
    own_reports = Reported(good, draft.pairs[good], draft.at[good], draft.durations_seconds[good])
    result = matches(own_reports, theirs, rule.meeting_window_seconds)
    met, partner = good[result >= 0], result[result >= 0]
    basis, seconds, moments = draft.basis.copy(), draft.seconds.copy(), draft.moments.copy()
    shares, confirms, carried = draft.shares.copy(), draft.confirms.copy(), draft.carried.copy()
    basis[met], shares[met], confirms[met] = Basis.BOTH, 1.0, theirs.numbers[partner]
    seconds[met] = np.minimum(draft.durations_seconds[met], theirs.durations_seconds[partner])
    moments[met] = np.minimum(draft.at[met], theirs.at[partner])
    carried[met] = theirs.at[partner] <= draft.at[met]
    own = [(row[2], row[3]) for row in waiting if row[1] == reporter]
    basis[_too_many(draft, np.flatnonzero(basis == Basis.WAITING), own, rule)] = Basis.ONE
    return replace(
        draft, basis=basis, seconds=seconds, moments=moments, shares=shares, confirms=confirms, carried=carried
    )


def _too_many(draft: Draft, waits: Integers, own: list[tuple[int, float]], rule: EvidenceRule) -> Integers:
    most = int(daily_caps.MOST_REPORTS * rule.pair_day)
    held: dict[tuple[int, int], int] = {}
    for pair, at in own:
        day = (pair, int(at // DAY_SECONDS))
        held[day] = held.get(day, 0) + 1
    surplus = []
    days = daily_caps.day_of(draft.at[waits]).tolist()
    for k, pair, date in zip(waits.tolist(), draft.pairs[waits].tolist(), days, strict=True):
        held[pair, date] = held.get((pair, date), 0) + 1
        if held[pair, date] > most:
            surplus.append(k)
    return np.array(surplus, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Days:
    """Days of pairs that a draft adds to. `of`: index of each report's day; pairs, starts: of each day."""

    of: Integers
    pairs: Integers
    starts: Floats

    def __len__(self) -> int:
        return len(self.pairs)


def days_of(draft: Draft) -> Days:
    """The days a draft adds to."""
    days = daily_caps.day_of(draft.moments)
    keys, place = np.unique(np.stack((draft.pairs, days)), axis=1, return_inverse=True)
    return Days(place.reshape(-1), keys[0], keys[1] * DAY_SECONDS)


def apply_daily_caps(draft: Draft, days: Days, used: Sequence[Row], full_seconds: float, rule: EvidenceRule) -> Draft:
    """Apply the daily caps of pairs to the draft; `used` are rows of the store."""
    units, reports = np.zeros(3 * len(days)), np.zeros(3 * len(days), dtype=np.int64)
    for place, sort, counted, own in used:
        units[3 * place + sort], reports[3 * place + sort] = counted, own
    counting = np.flatnonzero(draft.shares > 0)
    positive, basis = draft.positive[counting], draft.basis[counting]
    sorts = daily_caps.sorts(positive, basis == Basis.PLATFORM)
    weights = np.minimum(draft.seconds[counting], full_seconds) / full_seconds
    bounded = (basis == Basis.ONE) & ~positive
    shares = draft.shares.copy()
    shares[counting] = daily_caps.shares_of_day(
        3 * days.of[counting] + sorts, weights, bounded, Used(units, reports), rule.pair_day
    )
    return replace(draft, shares=shares)


@dataclass(frozen=True, slots=True)
class Displaced:
    """Earlier reports displaced by newer ones of the same reporter and day: numbers, and the evidence to remove.

    given: other ends' reports that count instead: basis, share, seconds and number; `pieces` holds their evidence.
    """

    numbers: list[int]
    pieces: Pieces
    dropped: int
    given: list[Row] = field(default_factory=list)

    def changes(self) -> list[Row]:
        """Changes of the reports concerned: basis, share, seconds and number."""
        return [*((Basis.ONE.value, 0.0, 0.0, number) for number in self.numbers), *self.given]

    def days(self) -> list[tuple[int, float]]:
        """Pair and start of each day in which a report was displaced."""
        starts = daily_caps.day_of(self.pieces.at) * DAY_SECONDS
        return sorted({*zip(self.pieces.pairs.tolist(), starts.tolist(), strict=True)})

    @property
    def events(self) -> int:
        """Number of reports that no longer count because of newer ones."""
        return len(self.numbers) + self.dropped


NOTHING = Displaced([], Pieces.of([], [], [], []), 0)


def keep_newest(
    draft: Draft, earlier: Sequence[Row], full_seconds: float, rule: EvidenceRule
) -> tuple[Draft, Displaced]:
    """Keep only the newest of the reporter's bad reports of each day, up to its cap; also return what they displace.

    earlier: number, pair, time, seconds and share of the reporter's counted bad reports on the same days.
    """
    own = np.flatnonzero((draft.basis == Basis.ONE) & (draft.shares > 0) & ~draft.positive)
    numbers, pairs, at, seconds, shares = (np.array(c) for c in zip(*earlier, strict=True)) if earlier else _NO_ROWS
    all_at = np.concatenate((at, draft.at[own]))
    all_shares = np.concatenate((shares, draft.shares[own]))
    lengths = np.concatenate((seconds, draft.seconds[own]))
    units = all_shares * np.minimum(lengths, full_seconds) / full_seconds
    order = np.concatenate((numbers, numbers.max(initial=0) + 1 + np.arange(len(own))))
    retained = np.ones(len(all_at), dtype=np.bool_)
    days = daily_caps.day_of(all_at)
    for day in np.unique(days):
        of_day = days == day
        retained[of_day] = daily_caps.newest_that_count(all_at[of_day], order[of_day], units[of_day], rule.reporter_day)
    if retained.all():
        return draft, NOTHING
    out, lost = ~retained[: len(at)], own[~retained[len(at) :]]
    left = draft.shares.copy()
    left[lost] = 0.0
    none = np.zeros(np.count_nonzero(out), dtype=np.bool_)
    gone = Pieces(
        pairs=pairs[out].astype(np.int64),
        positive=none,
        durations_seconds=seconds[out],
        at=at[out],
        witnessed=none,
        shares=-shares[out],
    )
    return replace(draft, shares=left), Displaced(numbers[out].tolist(), gone, len(lost))


def hand_over(displaced: Displaced, surplus: Sequence[Row], full_seconds: float) -> Displaced:
    """Let other ends' bad reports take the room of displaced ones: a day stays as full as it was.

    Otherwise an end could fill a pair's day with its own bad reports, so that the other end's do not count, and then
    displace its own. surplus: number, pair, time, seconds, share and basis of what a full day left out.
    """
    units = -displaced.pieces.shares * np.minimum(displaced.pieces.durations_seconds, full_seconds) / full_seconds
    days = daily_caps.day_of(displaced.pieces.at).tolist()
    room: dict[tuple[int, int], float] = {}
    for pair, day, freed in zip(displaced.pieces.pairs.tolist(), days, units.tolist(), strict=True):
        room[pair, day] = room.get((pair, day), 0.0) + freed
    given, added = [], []
    for number, pair, at, seconds, share, basis in surplus:
        day, weight = (pair, int(at // DAY_SECONDS)), min(seconds, full_seconds) / full_seconds
        more = min(1.0 - share, room[day] / weight)
        if more <= 0.0:
            continue
        room[day] -= more * weight
        given.append((basis, min(1.0, share + more), seconds, number))
        added.append((pair, False, seconds, at, False, more))
    if not added:
        return displaced
    pieces = displaced.pieces.followed_by(Pieces.of(*zip(*added, strict=True)))
    return replace(displaced, pieces=pieces, given=given)


_NO_ROWS = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))

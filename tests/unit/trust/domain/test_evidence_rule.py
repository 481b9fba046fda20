"""The evidence rule: good needs two, bad needs one, both are bounded. Held against plain loops over all reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.trust.domain import evidence_batch
from services.trust.domain.confirmation import Reported, matches
from services.trust.domain.daily_caps import Used, newest_that_count, shares_of_day
from services.trust.domain.evidence import EvidenceTable, Pieces, direct_trust_of, fold
from services.trust.domain.parameters import DAY_SECONDS, LIVE, EvidenceRule, TrustParameters
from services.trust.domain.records import Basis
from tests.unit.trust.domain.evidence_by_hand import ADMIN, ONE, OTHER, PLATFORM, Court, Report

PARAMETERS = TrustParameters()
NOW = 20 * DAY_SECONDS
SMALL = EvidenceRule(pair_day=2.0, reporter_day=3.0)
"""Caps low enough to be reached in a few reports."""

# Coarse times, so that reports fall into each other's windows and days.
moments = st.integers(0, 3 * 144).map(lambda k: NOW - k * 600.0 / 2)
durations = st.sampled_from([0.0, 0.5, 20.0, 60.0, 600.0])
reports = st.builds(
    Report, st.sampled_from([ONE, OTHER, ADMIN, PLATFORM]), st.booleans(), durations, moments, st.integers(0, 1)
)


class Books:
    """The registry's books in memory: what the store would keep, row by row."""

    def __init__(self, rule: EvidenceRule) -> None:
        self.rule = rule
        self.rows: list[dict[str, Any]] = []
        self.table = EvidenceTable.empty(2)
        self.displaced = 0

    def hear(self, several: Sequence[Report]) -> evidence_batch.Draft:
        """A batch of one reporter."""
        who = several[0].reporter
        reporter = {ONE: 1, OTHER: 2}.get(who, 0)
        source = {PLATFORM: Basis.PLATFORM, ADMIN: Basis.ADMIN}.get(who, Basis.ONE)
        draft = evidence_batch.build_draft(
            np.array([one.pair + 1 for one in several]),
            np.array([one.positive for one in several]),
            np.array([one.duration_seconds for one in several]),
            np.array([one.at for one in several]),
            source,
        )
        waiting = [self._row(r, "number reporter pair at duration") for r in self.rows if r["basis"] == "waiting"]
        draft = evidence_batch.confirm(draft, waiting, reporter, NOW, self.rule)
        days = evidence_batch.days_of(draft)
        draft = evidence_batch.apply_daily_caps(draft, days, self._used(days, reporter), 60.0, self.rule)
        counted = [r for r in self.rows if r["basis"] == "one" and r["share"] > 0 and r["reporter"] == reporter]
        earlier = [self._row(r, "number pair at seconds share") for r in counted]
        draft, out = evidence_batch.keep_newest(draft, earlier, 60.0, self.rule)
        self._keep(draft, out, reporter)
        return draft

    def _keep(self, draft: evidence_batch.Draft, out: evidence_batch.Displaced, reporter: int) -> None:
        for basis, share, seconds, number in draft.changes():
            self.rows[number - 1] |= {"basis": basis, "share": share, "seconds": seconds}
        for number in out.numbers:
            self.rows[number - 1]["share"] = 0.0
        for k, (basis, share, seconds) in enumerate(zip(*draft.standing(), strict=True)):
            row: dict[str, Any] = {"number": len(self.rows) + 1, "reporter": reporter, "pair": int(draft.pairs[k])}
            row |= {"positive": bool(draft.positive[k]), "at": float(draft.at[k])}
            row |= {"duration": float(draft.durations_seconds[k]), "basis": basis, "share": share, "seconds": seconds}
            self.rows.append(row)
        pieces = draft.pieces().followed_by(out.pieces)
        self.table = fold(self.table, replace(pieces, pairs=pieces.pairs - 1), PARAMETERS)
        self.displaced += out.events

    def _used(self, days: evidence_batch.Days, reporter: int) -> list[tuple[Any, ...]]:
        result = []
        for place, (pair, start) in enumerate(zip(days.pairs.tolist(), days.starts.tolist(), strict=True)):
            of_day = [r for r in self.rows if r["pair"] == pair and 0 <= r["at"] - start < DAY_SECONDS and r["share"]]
            for sort in range(3):
                own = [r for r in of_day if self._sort(r) == sort]
                units = math.fsum(r["share"] * min(r["seconds"], 60.0) / 60.0 for r in own)
                result.append((place, sort, units, sum(r["reporter"] == reporter for r in own)))
        return result

    @staticmethod
    def _sort(row: dict[str, Any]) -> int:
        return (1 if row["basis"] == "platform" else 0) if row["positive"] else 2

    @staticmethod
    def _row(row: dict[str, Any], names: str) -> tuple[Any, ...]:
        return tuple(row[name] for name in names.split())

    def trust(self, now: float = NOW) -> list[float]:
        result: list[float] = direct_trust_of(self.table, now, PARAMETERS, self.rule).tolist()
        return result


def heard(history: Sequence[Report], rule: EvidenceRule) -> tuple[Books, Court]:
    books, court = Books(rule), Court(PARAMETERS, rule)
    for one in history:
        books.hear([one])
        court.hear(one)
    return books, court


@settings(max_examples=150)
@given(st.lists(reports, max_size=25), st.sampled_from([LIVE, SMALL]))
def test_the_books_say_what_plain_loops_over_all_reports_say(history: list[Report], rule: EvidenceRule) -> None:
    books, court = heard(history, rule)
    assert books.trust() == pytest.approx([court.trust(NOW, 0), court.trust(NOW, 1)], abs=1e-9)
    assert sum(row["basis"] == "waiting" for row in books.rows) == len(court.waiting)


@settings(max_examples=60)
@given(st.lists(reports, max_size=20), st.integers(1, 5))
def test_a_batch_counts_as_its_reports_one_by_one(history: list[Report], size: int) -> None:
    """With a wide reporter's day: within a batch the day of a pair is filled before the reporter's."""
    rule = EvidenceRule(pair_day=2.0, reporter_day=1e9)
    batches, single = Books(rule), Books(rule)
    for who in (PLATFORM, ONE, ADMIN, OTHER):
        own = [one for one in history if one.reporter == who]
        for start in range(0, len(own), size):
            batches.hear(own[start : start + size])
        for one in own:
            single.hear([one])
    assert batches.trust() == pytest.approx(single.trust(), abs=1e-9)


@settings(max_examples=60)
@given(st.lists(reports, max_size=15), st.lists(reports, min_size=1, max_size=15))
def test_no_report_of_one_end_alone_raises_trust(history: list[Report], more: list[Report]) -> None:
    """No report by n alone, however many, raises any trust in n, where nothing of the other end waits for it."""
    history = [one for one in history if not (one.reporter == OTHER and one.positive)]
    books, _ = heard(history, LIVE)
    before = books.trust()
    for one in more:
        books.hear([replace(one, reporter=ONE)])
    assert all(after <= was + 1e-9 for was, after in zip(before, books.trust(), strict=True))


@given(st.lists(reports, max_size=30))
def test_the_bad_of_one_end_outweighs_any_number_of_the_others_own_reports(more: list[Report]) -> None:
    """50 negatives of m about n outweigh any number of n's own reports, tiny bad ones that would dilute included."""
    books = Books(LIVE)
    for one in more:
        books.hear([replace(one, reporter=ONE, pair=0)])
    books.hear([Report(OTHER, False, 60.0, NOW - k) for k in range(50)])
    for one in more:
        books.hear([replace(one, reporter=ONE, pair=0, at=one.at - 1)])
    assert books.trust()[0] == 0.0


def test_flood_of_tiny_bad_reports_dilutes_only_within_bounds() -> None:
    books = Books(LIVE)
    meetings = [Report(ONE, True, 60.0, NOW - DAY_SECONDS - 600.0 * k) for k in range(8)]
    books.hear(meetings)
    books.hear([replace(one, reporter=OTHER) for one in meetings])
    before = books.trust()[0]
    for start in range(0, 500, 50):
        books.hear([Report(ONE, False, 0.0, NOW - 1 - start - k / 100) for k in range(50)])
    assert books.table[0].negative_weight <= 10 * LIVE.pair_day
    assert 0 < books.trust()[0] < before
    books.hear([Report(OTHER, False, 60.0, NOW - 1 - k) for k in range(8)])
    assert books.trust()[0] == 0.0
    assert books.table[0].negative == pytest.approx(8.0, abs=1e-3)


def test_meeting_counts_once_with_shorter_duration_and_earlier_time() -> None:
    """By hand: 60 s at t and 30 s at t + 400 s make one meeting of half a unit at t; 601 s apart they make none."""
    for first, second in (((ONE, 60.0, 0.0), (OTHER, 30.0, 400.0)), ((OTHER, 30.0, 400.0), (ONE, 60.0, 0.0))):
        books = Books(LIVE)
        for who, seconds, later in (first, second):
            books.hear([Report(who, True, seconds, NOW - 1000.0 + later)])
        assert books.table[0].count == 1
        assert books.table[0].reference_time == NOW - 1000.0
        assert books.trust(NOW)[0] == pytest.approx(0.5 / 6, abs=1e-4)
        assert sorted(row["basis"] for row in books.rows) == ["both", "half"]
    apart = Books(LIVE)
    apart.hear([Report(ONE, True, 60.0, NOW - 1000.0)])
    apart.hear([Report(OTHER, True, 60.0, NOW - 399.0)])
    assert (apart.trust()[0], [row["basis"] for row in apart.rows]) == (0.0, ["waiting", "waiting"])


def test_a_report_that_comes_too_late_confirms_nothing() -> None:
    books = Books(LIVE)
    old = NOW - LIVE.confirm_seconds - 1.0
    books.hear([Report(ONE, True, 60.0, old)])
    books.hear([Report(OTHER, True, 60.0, old)])
    assert books.trust()[0] == 0.0


def test_more_than_could_ever_count_does_not_wait() -> None:
    books = Books(LIVE)
    draft = books.hear([Report(ONE, True, 60.0, NOW - 1.0 - k / 10) for k in range(500)])
    assert draft.unconfirmed == 10 * LIVE.pair_day
    again = books.hear([Report(ONE, True, 60.0, NOW - 2.0)])
    assert (again.unconfirmed, books.trust()[0]) == (0, 0.0)


def test_of_too_many_bad_reports_the_newest_count() -> None:
    """A reporter's day takes three units here: of five full ones the two oldest lose what they counted."""
    books = Books(SMALL)
    start = NOW - DAY_SECONDS
    for k in range(5):
        books.hear([Report(ONE, False, 60.0, start + 600.0 * k, k % 2)])
    assert [row["share"] for row in books.rows] == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert books.displaced == 2
    assert [books.table[k].count for k in range(2)] == [2, 1]
    late = Books(SMALL)
    late.hear([Report(ONE, False, 60.0, start + 600.0 * k, k % 2) for k in (4, 3, 2, 1)])
    assert [row["share"] for row in late.rows] == [1.0, 1.0, 1.0, 0.0]


def test_days_fill_by_units_and_not_by_reports() -> None:
    used = Used(np.array([7.5, 0.0]), np.zeros(2, np.int64))
    free = np.zeros(5, dtype=np.bool_)
    shares = shares_of_day(np.array([0, 1, 0, 0, 1]), np.array([1.0, 1.0, 0.0, 0.5, 0.25]), free, used, 8.0)
    assert shares.tolist() == [0.5, 1.0, 0.0, 0.0, 1.0]
    none = shares_of_day(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.bool_), used, 8.0)
    assert len(none) == 0


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1)), max_size=12),
    st.floats(0.1, 5),
)
def test_the_newest_that_count_fit_and_leave_out_only_older_ones(
    reports: list[tuple[float, float]], most: float
) -> None:
    at, units = (np.array(column) for column in zip(*reports, strict=True)) if reports else (np.zeros(0), np.zeros(0))
    retained = newest_that_count(at, np.arange(len(at)), units, most)
    assert units[retained].sum() <= most * (1 + 1e-9)
    if retained.any() and not retained.all():
        assert at[~retained].max() <= at[retained].min()


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=10),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=10),
    st.integers(0, 6),
)
def test_matches_take_the_nearest_that_is_left(
    new: list[tuple[int, int]], waiting: list[tuple[int, int]], window: int
) -> None:
    def columns(rows: list[tuple[int, int]]) -> Reported:
        pairs, at = zip(*rows, strict=True) if rows else ((), ())
        return Reported.of(range(1, len(rows) + 1), pairs, at, [1.0] * len(rows))

    partners = matches(columns(new), columns(waiting), window).tolist()
    left = list(range(len(waiting)))
    for k, (pair, at) in enumerate(new):
        near = [j for j in left if waiting[j][0] == pair and abs(waiting[j][1] - at) <= window]
        best = min(near, key=lambda j: abs(waiting[j][1] - at), default=-1)
        assert partners[k] == best
        if best >= 0:
            left.remove(best)


def test_pieces_without_a_share_change_nothing() -> None:
    table = fold(EvidenceTable.empty(1), Pieces.of([0], [True], [60.0], [5.0]), PARAMETERS)
    after = fold(table, Pieces.of([0], [False], [60.0], [900.0], shares=0.0), PARAMETERS)
    assert after[0] == table[0]

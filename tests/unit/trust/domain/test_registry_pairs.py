"""Pairs in memory: snapshots, replays, priors and the graphs they give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trust.domain.evidence import Evidence, Pieces, Prior, add, direct_trust_at
from services.trust.domain.graph import TrustGraph
from services.trust.domain.pairs import GraphBuilder, LivePairs, PairSnapshot, Priors
from services.trust.domain.parameters import LIVE, TrustParameters
from services.trust.domain.scores import Interaction

PARAMETERS = TrustParameters(decay_rate=0.01)
Row = tuple[Any, ...]
COUPLES = [(1, 2), (1, 5), (2, 3), (3, 4), (4, 9)]

acts = st.lists(
    st.tuples(
        st.integers(0, len(COUPLES) - 1), st.booleans(), st.floats(0, 100), st.floats(0, 100).map(lambda t: round(t, 3))
    ),
    max_size=30,
)
Act = tuple[int, bool, float, float]


def evidence_of(history: Iterable[Act], couple: int) -> Evidence:
    result = Evidence()
    for which, positive, duration, at in history:
        if which == couple:
            result = add(result, Interaction(positive, duration, at), PARAMETERS)
    return result


def rows_of(history: list[Act]) -> list[Row]:
    rows: list[Row] = []
    for k, (low, high) in enumerate(COUPLES):
        rows.append((k + 1, low, high, *astuple(evidence_of(history, k))))
    return rows


def snapshot_of(history: list[Act]) -> PairSnapshot:
    book = LivePairs()
    book.take(rows_of(history), 1)
    return book.snapshot()


def test_a_snapshot_stays_while_the_book_goes_on() -> None:
    book = LivePairs()
    once = (1.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    book.take([(1, 3, 4, 1, 1, *once, 5.0)], 1)
    before = book.snapshot()
    assert book.snapshot() is before
    book.take([(1, 3, 4, 2, 1, *once, 6.0), (2, 1, 2, 1, 1, *once, 7.0)], 2)
    assert (len(before), before.evidence[0].count, before.latest) == (1, 1, 5.0)
    after = book.snapshot()
    assert (len(after), after.evidence[0].count, after.latest, after.version) == (2, 2, 7.0, 2)
    assert (book.row(1, 2), book.row(2, 9), after.row_of(4, 3)) == (1, None, 0)


@given(acts, st.floats(0, 120))
def test_a_replay_equals_what_was_known_then(history: list[Act], at: float) -> None:
    """Scores at any chosen time, also in the past."""
    pairs = snapshot_of(history)
    past = [act for act in history if act[3] <= at]
    pieces = Pieces.of(*(list(column) for column in zip(*past, strict=True))) if past else Pieces.of([], [], [], [])
    then = pairs.replayed(at, pieces, {}, PARAMETERS)
    direct = then.direct(at, PARAMETERS, LIVE)
    for k in range(len(COUPLES)):
        expected = direct_trust_at(evidence_of(past, k), at, PARAMETERS)
        assert direct[k] == pytest.approx(expected, abs=1e-12)
        assert then.evidence.goods[k] == sum(act[1] for act in past if act[0] == k)


@given(acts, st.floats(100, 500), st.floats(0, 100))
def test_an_aged_graph_equals_a_rebuilt_one(history: list[Act], at: float, later: float) -> None:
    pairs, builder = snapshot_of(history), GraphBuilder(PARAMETERS, LIVE)
    builder.build(pairs, at, 12)
    result = builder.build(pairs, at + later, 12)
    expected = TrustGraph.from_ties(12, pairs.low, pairs.high, pairs.direct(at + later, PARAMETERS, LIVE))
    assert result.size == expected.size
    assert result.indptr.tolist() == expected.indptr.tolist()
    assert result.indices.tolist() == expected.indices.tolist()
    assert result.values.tolist() == expected.values.tolist()


@given(acts, st.permutations([(1, 2), (2, 3), (4, 9), (1, 9), (6, 7)]))
def test_priors_join_known_pairs_and_follow_behind_for_strangers(
    history: list[Act], related: list[tuple[int, int]]
) -> None:
    ends = np.array(related)
    closeness = np.linspace(0.1, 0.9, len(related))
    priors = Priors(ends[:, 0], ends[:, 1], closeness, np.full(len(related), 5.0))
    pairs = snapshot_of(history).with_priors(priors)
    assert len(pairs) == len(COUPLES) + 2
    direct = pairs.direct(200.0, PARAMETERS, LIVE)
    worth = dict(zip(related, closeness.tolist(), strict=True))
    for low, high in {*COUPLES, *related}:
        row = pairs.row_of(low, high)
        assert row is not None
        prior = Prior(worth[low, high], 5.0) if (low, high) in worth else Prior()
        assert pairs.prior_of(row) == prior
        known = evidence_of(history, COUPLES.index((low, high))) if (low, high) in COUPLES else Evidence()
        assert direct[row] == pytest.approx(direct_trust_at(known, 200.0, PARAMETERS, LIVE, prior), abs=1e-12)


def test_an_empty_book_gives_an_empty_graph() -> None:
    graph = GraphBuilder(PARAMETERS, LIVE).build(LivePairs().snapshot(), 5.0, 3)
    assert (graph.size, graph.ties) == (3, 0)

"""A few numbers per pair say the same as the whole history."""

from __future__ import annotations

import math
from dataclasses import astuple
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trust.domain.evidence import (
    Evidence,
    EvidenceTable,
    Pieces,
    Prior,
    add,
    direct_trust_at,
    direct_trust_of,
    fold,
    handed_down,
    merge,
    tabled,
)
from services.trust.domain.parameters import (
    LIVE,
    NEUTRAL,
    EvidenceRule,
    InvalidTrustParameters,
    TrustParameters,
)
from services.trust.domain.scores import Interaction, InvalidInteraction

PARAMETERS = st.builds(TrustParameters, st.floats(0, 0.5), st.floats(0.1, 4), st.floats(0.1, 20))
HISTORY = st.lists(st.builds(Interaction, st.booleans(), st.floats(0, 30), st.floats(-50, 50)), max_size=12)


def summed(history: list[Interaction], parameters: TrustParameters) -> Evidence:
    evidence = Evidence()
    for interaction in history:
        evidence = add(evidence, interaction, parameters)
    return evidence


@given(HISTORY, PARAMETERS, st.floats(0, 100))
def test_the_sums_equal_the_history_whatever_the_order_of_arrival(
    history: list[Interaction], parameters: TrustParameters, later: float
) -> None:
    now = 50 + later
    expected = ratio(history, now, parameters)
    for order in (history, history[::-1], sorted(history, key=lambda item: item.at)):
        assert direct_trust_at(summed(order, parameters), now, parameters) == pytest.approx(expected, abs=1e-12)


def ratio(history: list[Interaction], now: float, parameters: TrustParameters, prior_weight: float = 5.0) -> float:
    """clamp01( (Σ_pos w a − ν Σ_neg w a) / (Σ a + κ) ), a = exp(−ξ(now − t_b)), term by term."""
    age = [math.exp(-parameters.decay_rate * (now - item.at)) for item in history]
    full = parameters.full_duration_seconds
    sign = [1.0 if item.positive else -parameters.penalty for item in history]
    terms = [s * min(i.duration_seconds, full) / full * a for s, i, a in zip(sign, history, age, strict=True)]
    return min(1.0, max(0.0, math.fsum(terms) / (math.fsum(age) + prior_weight)))


@given(HISTORY, HISTORY, PARAMETERS)
def test_merged_parts_equal_the_whole(
    one: list[Interaction], other: list[Interaction], parameters: TrustParameters
) -> None:
    merged = merge(summed(one, parameters), summed(other, parameters), parameters)
    whole = summed(one + other, parameters)
    assert merged.count == whole.count
    assert direct_trust_at(merged, 60, parameters) == pytest.approx(direct_trust_at(whole, 60, parameters), abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 4), HISTORY), max_size=6), PARAMETERS)
def test_a_folded_batch_equals_one_by_one(
    parts: list[tuple[int, list[Interaction]]], parameters: TrustParameters
) -> None:
    table, states = EvidenceTable.empty(5), [Evidence()] * 5
    for pair, history in parts:
        for item in history:
            seen, share = item.duration_seconds > 15, 0.5 if item.at > 0 else 1.0
            states[pair] = add(states[pair], item, parameters, witnessed=seen, share=share)
    for half in (parts[::2], parts[1::2]):
        flat = [(pair, item) for pair, history in half for item in history]
        pieces = Pieces.of(
            [pair for pair, _ in flat],
            [item.positive for _, item in flat],
            [item.duration_seconds for _, item in flat],
            [item.at for _, item in flat],
            [item.duration_seconds > 15 for _, item in flat],
            [0.5 if item.at > 0 else 1.0 for _, item in flat],
        )
        table = fold(table, pieces, parameters)
    for pair, state in enumerate(states):
        assert astuple(table[pair]) == pytest.approx(astuple(state))
    assert [astuple(row) for row in (tabled(states)[k] for k in range(5))] == [astuple(state) for state in states]
    expected = [direct_trust_at(state, 70, parameters, LIVE, Prior(0.6, 8)) for state in states]
    assert direct_trust_of(table, 70, parameters, LIVE, 0.6, 8.0) == pytest.approx(expected, abs=1e-12)
    plain = [direct_trust_at(state, 70, parameters) for state in states]
    assert direct_trust_of(table, 70, parameters) == pytest.approx(plain, abs=1e-12)


def test_a_long_history_folds_into_one_state() -> None:
    rng = np.random.default_rng(0)
    count = 200_000
    parameters = TrustParameters(decay_rate=1e-6)
    times = np.sort(rng.uniform(0, 1e6, count))
    pieces = Pieces.of(np.zeros(count, int), rng.random(count) < 0.9, np.full(count, 90.0), times)
    table = fold(EvidenceTable.empty(1), pieces, parameters)
    assert len(table) == 1
    # The count ages with the sums: what is left is the balance of nine good in ten, ν = 2; κ is as nothing.
    assert direct_trust_at(table[0], 1e6, parameters) == pytest.approx(0.9 - 2 * 0.1, abs=0.01)


@given(st.floats(0, 1), st.just(0.0) | st.floats(0.01, 50))
def test_a_prior_is_all_a_stranger_has(closeness: float, pseudo_count: float) -> None:
    e = direct_trust_at(Evidence(), 0.0, NEUTRAL, LIVE, Prior(closeness, pseudo_count))
    assert e == pytest.approx(closeness * min(1.0, pseudo_count / LIVE.prior_weight))


def test_evidence_takes_over_from_the_prior() -> None:
    prior = Prior(closeness=0.9, pseudo_count=6)
    scores = []
    evidence = Evidence()
    for k in range(400):
        scores.append(direct_trust_at(evidence, float(k), NEUTRAL, LIVE, prior))
        evidence = add(evidence, Interaction(True, 0.2, float(k)), NEUTRAL)
    assert scores[0] == 0.9
    assert all(later < earlier for earlier, later in pairwise(scores))
    assert scores[-1] == pytest.approx(0.2, abs=0.02)


def test_a_bad_history_cancels_a_prior() -> None:
    evidence = summed([Interaction(False, 1, 0)] * 6, NEUTRAL)
    assert direct_trust_at(evidence, 0, NEUTRAL, LIVE, Prior(0.9, 6)) == 0.0


def test_the_past_is_refused_with_advice_to_replay() -> None:
    evidence = summed([Interaction(True, 1, 5)], NEUTRAL)
    with pytest.raises(InvalidInteraction, match="replay"):
        direct_trust_at(evidence, 4, NEUTRAL)
    table = fold(EvidenceTable.empty(2), Pieces.of([1], [True], [1.0], [5.0]), NEUTRAL)
    with pytest.raises(InvalidInteraction, match="pair 1"):
        direct_trust_of(table, 4, NEUTRAL)


@pytest.mark.parametrize(
    ("pairs", "durations", "at"),
    [
        ([0, 2], [1, 1], [0, 0]),
        ([0, 1], [1, -1], [0, 0]),
        ([0, 1], [1, 1], [0, math.nan]),
        ([0, -1], [1, math.inf], [0, 0]),
    ],
)
def test_a_bad_batch_is_refused_whole_with_its_index(pairs: list[int], durations: list[float], at: list[float]) -> None:
    with pytest.raises(InvalidInteraction, match="interaction 1 "):
        fold(EvidenceTable.empty(2), Pieces.of(pairs, [True, True], durations, at), NEUTRAL)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(InvalidInteraction, match="differ in length"):
        fold(EvidenceTable.empty(2), Pieces.of([0], [True, False], [1.0], [0.0]), NEUTRAL)


@pytest.mark.parametrize(("closeness", "count"), [(1.1, 1), (math.nan, 1), (0.5, -1), (0.5, math.inf)])
def test_a_prior_out_of_range_is_refused(closeness: float, count: float) -> None:
    with pytest.raises(InvalidTrustParameters, match="prior"):
        Prior(closeness, count)


@given(HISTORY, HISTORY, PARAMETERS, st.floats(0, 100))
def test_what_the_platform_saw_lifts_trust_to_its_cap_and_never_lowers_it(
    met: list[Interaction], seen: list[Interaction], parameters: TrustParameters, later: float
) -> None:
    """witness_cap bounds what rounds alone can give; beside meetings, rounds done well never cost anything."""
    now, rounds = 50 + later, [Interaction(True, 1e9, item.at) for item in seen]
    evidence = summed(met, parameters)
    without = direct_trust_at(evidence, now, parameters)
    for item in rounds:
        evidence = add(evidence, item, parameters, witnessed=True)
    both = direct_trust_at(evidence, now, parameters)
    assert both >= without - 1e-12
    assert both <= LIVE.witness_cap + (1 - LIVE.witness_cap) * without + 1e-12
    alone = Evidence()
    for item in rounds:
        alone = add(alone, item, parameters, witnessed=True)
    assert direct_trust_at(alone, now, parameters) <= LIVE.witness_cap


@given(HISTORY.filter(len), PARAMETERS, st.integers(0, 11))
def test_a_piece_taken_out_again_leaves_no_trace(
    history: list[Interaction], parameters: TrustParameters, which: int
) -> None:
    pieces = Pieces.of(
        [0] * len(history),
        [item.positive for item in history],
        [item.duration_seconds for item in history],
        [item.at for item in history],
    )
    out = pieces.at_rows(np.array([which % len(history)]))
    taken = fold(
        fold(EvidenceTable.empty(1), pieces, parameters),
        Pieces.of(out.pairs, out.positive, out.durations_seconds, out.at, shares=-1.0),
        parameters,
    )
    rest = [item for k, item in enumerate(history) if k != which % len(history)]
    assert taken[0].count == len(rest)
    assert direct_trust_at(taken[0], 60, parameters) == pytest.approx(ratio(rest, 60, parameters), abs=1e-9)


def test_owners_record_is_handed_down_with_bad_in_full_and_good_halved() -> None:
    record = Evidence(12, 9, 8.0, 2.0, 9.0, 3.0, 4.0, 5.0, 100.0)
    assert handed_down(record, 100.0, NEUTRAL) == Evidence(0, 0, 4.0, 2.0, 4.5, 3.0, 2.0, 2.5, 100.0)
    halving = TrustParameters(decay_rate=math.log(2) / 10)
    later = handed_down(record, 110.0, halving)
    assert astuple(later) == pytest.approx((0, 0, 2.0, 1.0, 2.25, 1.5, 1.0, 1.25, 110.0))
    assert direct_trust_at(handed_down(Evidence(), 5.0, NEUTRAL), 5.0, NEUTRAL) == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"prior_weight": 0.0},
        {"witness_cap": 1.0},
        {"witness_cap": -0.1},
        {"pair_day": math.inf},
        {"reporter_day": 0.0},
        {"meeting_window_seconds": -1.0},
        {"confirm_seconds": math.nan},
    ],
)
def test_a_rule_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidTrustParameters, match=next(iter(wrong))):
        EvidenceRule(**wrong)

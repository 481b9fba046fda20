"""Four numbers per pair say the same as the whole history."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trust.domain.evidence import (
    Evidence,
    EvidenceTable,
    Prior,
    add,
    direct_trust_at,
    direct_trust_of,
    fold,
    merge,
)
from services.trust.domain.parameters import NEUTRAL, InvalidTrustParameters, TrustParameters
from services.trust.domain.scores import Interaction, InvalidInteraction, direct_trust

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
    expected = direct_trust(history, now, parameters)
    for order in (history, history[::-1], sorted(history, key=lambda item: item.at)):
        assert direct_trust_at(summed(order, parameters), now, parameters) == pytest.approx(expected, abs=1e-12)


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
            states[pair] = add(states[pair], item, parameters)
    for half in (parts[::2], parts[1::2]):
        flat = [(pair, item) for pair, history in half for item in history]
        table = fold(
            table,
            [pair for pair, _ in flat],
            [item.positive for _, item in flat],
            [item.duration_seconds for _, item in flat],
            [item.at for _, item in flat],
            parameters,
        )
    for pair, state in enumerate(states):
        assert table[pair].count == state.count
        assert table[pair].reference_time == state.reference_time
        assert (table[pair].positive, table[pair].negative) == pytest.approx((state.positive, state.negative))
    expected = [direct_trust_at(state, 70, parameters, Prior(0.6, 2)) for state in states]
    assert direct_trust_of(table, 70, parameters, 0.6, 2.0) == pytest.approx(expected, abs=1e-12)
    plain = [direct_trust_at(state, 70, parameters) for state in states]
    assert direct_trust_of(table, 70, parameters) == pytest.approx(plain, abs=1e-12)


def test_a_long_history_folds_into_one_state() -> None:
    rng = np.random.default_rng(0)
    count = 200_000
    parameters = TrustParameters(decay_rate=1e-6)
    times = np.sort(rng.uniform(0, 1e6, count))
    table = fold(
        EvidenceTable.empty(1), np.zeros(count, int), rng.random(count) < 0.9, np.full(count, 90.0), times, parameters
    )
    assert len(table) == 1
    # E[w] over a uniform time in [0, T] is (1 − e^{−ξT})/(ξT); nine in ten are good and ν = 2.
    expected = (0.9 - 2 * 0.1) * (1 - math.exp(-1)) / 1
    assert direct_trust_at(table[0], 1e6, parameters) == pytest.approx(expected, abs=0.01)


@given(st.floats(0, 1), st.just(0.0) | st.floats(0.01, 50))
def test_a_prior_is_all_a_stranger_has(closeness: float, pseudo_count: float) -> None:
    e = direct_trust_at(Evidence(), 0.0, NEUTRAL, Prior(closeness, pseudo_count))
    assert e == pytest.approx(closeness if pseudo_count > 0 else 0.0)


def test_evidence_takes_over_from_the_prior() -> None:
    prior = Prior(closeness=0.9, pseudo_count=4)
    scores = []
    evidence = Evidence()
    for k in range(400):
        scores.append(direct_trust_at(evidence, float(k), NEUTRAL, prior))
        evidence = add(evidence, Interaction(True, 0.2, float(k)), NEUTRAL)
    assert scores[0] == 0.9
    assert all(later < earlier for earlier, later in pairwise(scores))
    assert scores[-1] == pytest.approx(0.2, abs=0.01)


def test_a_bad_history_cancels_a_prior() -> None:
    evidence = summed([Interaction(False, 1, 0)] * 4, NEUTRAL)
    assert direct_trust_at(evidence, 0, NEUTRAL, Prior(0.9, 4)) == 0.0


def test_the_past_is_refused_with_advice_to_replay() -> None:
    evidence = summed([Interaction(True, 1, 5)], NEUTRAL)
    with pytest.raises(InvalidInteraction, match="replay"):
        direct_trust_at(evidence, 4, NEUTRAL)
    table = fold(EvidenceTable.empty(2), [1], [True], [1.0], [5.0], NEUTRAL)
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
        fold(EvidenceTable.empty(2), pairs, [True, True], durations, at, NEUTRAL)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(InvalidInteraction, match="one length"):
        fold(EvidenceTable.empty(2), [0], [True, False], [1.0], [0.0], NEUTRAL)


@pytest.mark.parametrize(("closeness", "count"), [(1.1, 1), (math.nan, 1), (0.5, -1), (0.5, math.inf)])
def test_a_prior_out_of_range_is_refused(closeness: float, count: float) -> None:
    with pytest.raises(InvalidTrustParameters, match="prior"):
        Prior(closeness, count)

"""Contributions: exact by enumeration, sampled close to it, and asked for in batches that can be taken up again."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from services.aggregation.domain.contribution import Coalition, Inquiry, exact, members, sampled


def glove(coalition: Coalition) -> float:
    """One left glove, two right ones: a pair is worth 1."""
    return float(0 in coalition and bool(coalition & {1, 2}))


def test_the_glove_game_by_hand() -> None:
    """The left glove is pivotal unless it comes first (4 of 6 orders), a right one when it is second after the left."""
    assert exact(3, glove) == pytest.approx([2 / 3, 1 / 6, 1 / 6])
    whole = sampled(3, glove, np.random.default_rng(0))
    assert (whole.values.tolist(), whole.evaluations) == (exact(3, glove).tolist(), 8)
    result = sampled(3, glove, np.random.default_rng(0), tolerance=0.0, truncation=0.0, max_evaluations=7)
    assert result.values == pytest.approx([2 / 3, 1 / 6, 1 / 6], abs=0.4)


@given(st.integers(1, 5), st.integers(0, 2**32))
def test_exact_is_the_mean_over_all_orders(devices: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table: dict[Coalition, float] = {}

    def worth(coalition: Coalition) -> float:
        return table.setdefault(coalition, float(rng.normal()))

    values = np.zeros(devices)
    for order in permutations(range(devices)):
        for place, device in enumerate(order):
            values[device] += worth(frozenset(order[: place + 1])) - worth(frozenset(order[:place]))
    assert exact(devices, worth) == pytest.approx(values / math.factorial(devices), abs=1e-12)


@settings(max_examples=30)
@given(st.integers(1, 8), st.integers(0, 2**32), st.floats(0, 0.2))
def test_values_sum_to_the_worth_of_all_devices(devices: int, seed: int, truncation: float) -> None:
    """Σ φᵢ = v(N) − v(∅), truncated or not."""
    rng = np.random.default_rng(seed)
    skill = rng.uniform(0, 1, devices)

    def worth(coalition: Coalition) -> float:
        return 0.1 + math.tanh(sum(skill[i] for i in coalition))

    result = sampled(devices, worth, np.random.default_rng(1), truncation=truncation, max_evaluations=2**devices - 1)
    assert result.values.sum() == pytest.approx(worth(frozenset(range(devices))) - worth(frozenset()))


def test_additive_worth_is_found_at_once() -> None:
    """Where no device depends on another, one order is enough, and the errors say so."""
    skill = [0.5, -0.2, 0.1, 0.0]
    result = sampled(
        4,
        lambda coalition: sum(skill[i] for i in coalition),
        np.random.default_rng(0),
        truncation=0.0,
        max_evaluations=15,
    )
    assert result.values == pytest.approx(skill)
    assert result.errors.max() < 1e-12
    assert result.converged


@pytest.mark.parametrize("seed", range(5))
def test_ten_devices_are_ranked_as_by_all_1024_coalitions(seed: int) -> None:
    """Accuracy that saturates, with two devices that harm: rank correlation at least 0.95, within 400 coalitions."""
    rng = np.random.default_rng(seed)
    skill = np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, -0.3, -0.1])[rng.permutation(10)]

    def worth(coalition: Coalition) -> float:
        return 1.0 / (1.0 + math.exp(-3.0 * (sum(skill[i] for i in coalition) - 0.3)))

    result = sampled(10, worth, np.random.default_rng(seed), tolerance=0.01, max_evaluations=400)
    assert result.evaluations <= 400 + 200
    assert spearmanr(result.values, exact(10, worth)).statistic >= 0.95
    assert abs(result.values - exact(10, worth)).max() <= 5 * result.errors.max()


def test_a_hundred_devices_need_few_coalitions() -> None:
    """Truncation ends an order once it reaches the worth of all devices: far fewer than n coalitions for each."""
    skill = np.linspace(0.0, 1.0, 100)

    def worth(coalition: Coalition) -> float:
        return 1.0 - math.exp(-float(skill[list(coalition)].sum()) / 3.0)

    result = sampled(100, worth, np.random.default_rng(0), tolerance=0.01, truncation=0.01, max_evaluations=10_000)
    assert result.evaluations / result.orders < 50
    assert spearmanr(result.values, skill).statistic >= 0.9


def test_a_worth_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="devices is nan"):
        sampled(2, lambda coalition: math.nan, np.random.default_rng(0))
    with pytest.raises(ValueError, match="there are 0 devices"):
        sampled(0, lambda coalition: 1.0, np.random.default_rng(0))


@given(st.integers(2, 9), st.integers(0, 2**32), st.integers(1, 60))
def test_an_inquiry_taken_up_again_asks_the_same_and_ends_the_same(devices: int, seed: int, cut: int) -> None:
    """Only the answers need be remembered: a restart with those known so far goes on to the same values."""
    skill = np.random.default_rng(seed).normal(size=devices)

    def begin() -> Inquiry:
        return Inquiry(devices, np.random.default_rng(5), max_evaluations=2**devices - 1)

    def answer(inquiry: Inquiry, most: int = 10**6) -> Inquiry:
        while (questions := inquiry.questions()) and most > 0:
            for mask in questions[:most]:
                inquiry.answer(mask, math.tanh(sum(skill[i] for i in members(mask))))
            most -= len(questions)
        return inquiry

    whole = answer(begin()).result()
    torn = begin()
    torn.known |= answer(begin(), cut).known
    result = answer(torn).result()
    assert result.values.tolist() == whole.values.tolist()
    assert result.evaluations == whole.evaluations

"""Noise that is correlated over rounds: what it costs, by hand, and why it is not built."""

from __future__ import annotations

import numpy as np
import pytest

from coterie_lab.correlated import Plan, banded, last_noise, sensitivity


def test_the_cost_of_two_rounds_is_that_worked_by_hand() -> None:
    """C = [[1, 0], [½, 1]]: a device in both moves it by (1, 1.5), √3.25; C⁻ᵀ1 = (½, 1), √1.25; the product is 2.02."""
    strategy = banded(2, 2)
    assert strategy.tolist() == [[1.0, 0.0], [0.5, 1.0]]
    assert sensitivity(strategy, 1) == pytest.approx(3.25**0.5)
    assert sensitivity(strategy, 2) == pytest.approx(1.25**0.5)
    assert last_noise(strategy) == pytest.approx(1.25**0.5)


@pytest.mark.parametrize("seed", range(20))
def test_no_mechanism_beats_independent_noise_when_all_take_every_round(seed: int) -> None:
    """‖C·1‖ · ‖C⁻ᵀ1‖ ≥ T for every invertible C, and C = I has T."""
    random, rounds = np.random.default_rng(seed), 12
    strategy = np.tril(random.uniform(0.0, 1.0, (rounds, rounds)), -1) + np.diag(random.uniform(0.5, 2.0, rounds))
    assert sensitivity(strategy, 1) * last_noise(strategy) >= rounds * (1.0 - 1e-9)
    assert sensitivity(np.eye(rounds), 1) * last_noise(np.eye(rounds)) == pytest.approx(rounds)


def test_alternating_groups_gain_from_bands_less_than_full_participation() -> None:
    together, turns, bands = (Plan(*item).final_noise(50, 250) for item in ((1, 1), (5, 1), (5, 5)))
    assert together == pytest.approx(1.0)
    assert turns == pytest.approx(5**0.5)
    assert together < bands < turns

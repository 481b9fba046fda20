"""What all rounds of a task cost together, and the noise that keeps them within a target."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.privacy.accounting import gaussian_charge, total
from coterie.privacy.ledger import BudgetExceeded, Limit, PrivacyLedger
from coterie.privacy.lifetime import Lifetime, multiplier_for
from coterie.records import TaskSpecification
from coterie.strategies import consent
from tests.answers import made


def true_delta(multiplier: float, rounds: int, epsilon: float) -> float:
    """Balle and Wang's formula by the error function alone, for the sum of the rounds' ρ."""
    sigma = multiplier / math.sqrt(rounds)

    def below(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2.0))

    return below(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * below(-0.5 / sigma - epsilon * sigma)


def test_fifty_rounds_within_four_need_noise_of_seven_point_six_four_five() -> None:
    """By hand: σ = 1.08116 gives δ(σ, 4) = 1e-5, and √50 · 1.08116 = 7.6450."""
    assert multiplier_for(4.0, 1e-5, 50) == pytest.approx(7.6450, abs=5e-5)
    assert true_delta(7.6450, 50, 4.0) == pytest.approx(1e-5, rel=1e-3)
    assert true_delta(7.64, 50, 4.0) > 1e-5
    assert true_delta(7.65, 50, 4.0) < 1e-5


@settings(deadline=None, max_examples=40)
@given(st.floats(0.05, 40.0), st.sampled_from([1e-7, 1e-6, 1e-5, 1e-3]), st.integers(1, 400), st.floats(1e-6, 0.2))
def test_chosen_noise_meets_the_target_and_less_noise_would_exceed_it(
    target: float, delta: float, rounds: int, less: float
) -> None:
    """As the ledger composes it, charge by charge."""
    noise = multiplier_for(target, delta, rounds)
    composed = total([gaussian_charge("t", n, "update", "device", noise) for n in range(rounds)], delta, "device")
    assert composed <= target
    assert composed == pytest.approx(target, rel=1e-6)
    weaker = [gaussian_charge("t", n, "update", "device", noise * (1.0 - less)) for n in range(rounds)]
    assert total(weaker, delta, "device") > target


def test_a_task_is_read_however_it_says_its_noise() -> None:
    by_target = Lifetime.of({"privacy": {"target_epsilon": 4.0, "delta": 1e-5}}, 50)
    by_noise = Lifetime.of({"privacy": {"noise_multiplier": 7.645001, "delta": 1e-5}}, 50)
    by_round = Lifetime.of({"privacy": {"epsilon": 4.0, "delta": 1e-5}}, 1)
    assert by_target is not None
    assert by_noise is not None
    assert by_round is not None
    assert by_target.epsilon == pytest.approx(4.0, rel=1e-6)
    assert by_noise.epsilon == pytest.approx(4.0, rel=1e-5)
    assert by_round.epsilon == pytest.approx(4.0, rel=1e-9)
    assert "ε = 4.00 for all 50 rounds together at δ = 1e-05, the device left out (9.09 replaced)" in str(by_target)
    assert Lifetime.of({}, 5) is None
    trusting = made(TaskSpecification, privacy="trust", parameters={"privacy": {"noise_multiplier": 1.0}}, rounds=5)
    assert consent.lifetime_of(trusting) is None
    assert consent.lifetime_of(replace(trusting, privacy="uniform")) == Lifetime(1.0, 5, 1e-5)


def test_joining_shows_the_owner_the_price_and_the_rounds_within_the_limit(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "a.ledger", Limit(4.0, 1e-5, "device"))
    lifetime = Lifetime(multiplier_for(4.0, 1e-5, 50), 50, 1e-5)
    notice = consent.in_words("uniform", ledger, lifetime)
    assert "ε = 4.00 for all 50 rounds together" in notice
    assert "has room" not in notice
    narrow = PrivacyLedger(tmp_path / "b.ledger", Limit(2.0, 1e-5, "device"))
    fit = narrow.rounds_within(lifetime.multiplier, 50)
    assert f"has room for {fit} such rounds" in consent.in_words("uniform", narrow, lifetime)
    for number in range(fit):
        narrow.charge(gaussian_charge("t", number, "update", "device", lifetime.multiplier))
    assert narrow.rounds_within(lifetime.multiplier, 50) == 0
    with pytest.raises(BudgetExceeded):
        narrow.charge(gaussian_charge("t", fit, "update", "device", lifetime.multiplier))

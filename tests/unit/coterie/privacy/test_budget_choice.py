"""The device's own decision agrees with the platform's model of it, without its costs ever being sent."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.privacy.budget_choice import PrivateCosts, best_budget, decide, utility
from services.pricing.domain.budgets import Market, external_risk, utilities
from services.pricing.domain.followers import best_response, equilibrium
from services.pricing.domain.influence import leakage


def market(seed: int, n: int = 6) -> Market:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 1, (n, n))
    np.fill_diagonal(weights, 0)
    a, b, c = rng.uniform(0.5, 2, n), rng.uniform(0, 0.5, n), rng.uniform(0, 0.2, n)
    return Market(leakage(weights), a, b, c, np.ones(n), risk_weight=0.1)


def costs(of: Market, i: int) -> PrivateCosts:
    return PrivateCosts(float(of.cost_quadratic[i]), float(of.cost_linear[i]), float(of.cost_fixed[i]))


@settings(deadline=None)
@given(st.integers(0, 1000), st.floats(0, 3))
def test_devices_deciding_alone_make_the_best_responses_of_the_model(seed: int, price: float) -> None:
    game = market(seed)
    budgets = np.linspace(0, 1, game.devices)
    risk = external_risk(game, budgets)
    alone = [best_budget(price, float(risk[i]), costs(game, i), 0.1) for i in range(game.devices)]
    assert alone == pytest.approx(best_response(game, price, risk))
    worth = [utility(price, float(budgets[i]), float(risk[i]), costs(game, i), 0.1) for i in range(game.devices)]
    assert worth == pytest.approx(utilities(game, price, budgets))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(0.2, 3))
def test_repeated_decisions_settle_at_the_platforms_equilibrium(seed: int, price: float) -> None:
    game = market(seed)
    risk = np.zeros(game.devices)
    for _ in range(60):
        chosen = np.array([decide(price, float(risk[i]), costs(game, i), 0.1).budget for i in range(game.devices)])
        risk = external_risk(game, chosen)
    assert chosen == pytest.approx(equilibrium(game, price).budgets, abs=1e-9)


def test_a_decision_by_hand() -> None:
    """r = 1, a = 1, b = 0.2, C = 0.01, αR = 0.1: ρ = 0.4 − 0.1 = 0.3, s = 0.4, U = 0.3 − 0.01 − 0.16 − 0.08."""
    decision = decide(1.0, 2.0, PrivateCosts(1.0, 0.2, 0.01), 0.05)
    assert decision.budget == pytest.approx(0.3)
    assert decision.utility == pytest.approx(0.05)
    assert decision.payment == pytest.approx(0.3)
    assert decision.joins


def test_device_that_would_lose_may_decline_but_still_suffers_leakage() -> None:
    dear = PrivateCosts(1.0, 0.2, 1.0)
    assert decide(1.0, 2.0, dear, 0.05).utility == pytest.approx(-0.94)
    declined = decide(1.0, 2.0, dear, 0.05, least_utility=0.0)
    assert not declined.joins
    assert declined.payment == 0.0
    assert declined.utility == pytest.approx(-0.01 - 0.02)  # −a(αR)² − bαR, without the work


def test_below_its_reservation_price_a_device_withdraws() -> None:
    assert decide(0.1, 0.0, PrivateCosts(1.0, 0.2), 0.05).budget == 0.0
    assert decide(0.5, 100.0, PrivateCosts(1.0, 0.2), 0.05).budget == 0.0


def test_nonsense_is_refused() -> None:
    for bad in ((0.0, 0.0, 0.0), (math.nan, 0.0, 0.0), (1.0, -1.0, 0.0), (1.0, 0.0, math.inf)):
        with pytest.raises(ValueError, match="cost"):
            PrivateCosts(*bad)
    with pytest.raises(ValueError, match="price"):
        decide(math.nan, 0.0, PrivateCosts(1.0), 0.05)
    with pytest.raises(ValueError, match="external_risk"):
        decide(1.0, -1.0, PrivateCosts(1.0), 0.05)

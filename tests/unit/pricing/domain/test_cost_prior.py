"""A leader that knows costs only by a prior: by hand for one device, and cheapest on average for many."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize_scalar

from coterie.parameters.pricing import StackelbergParameters
from services.pricing.domain.budgets import Market, server_cost
from services.pricing.domain.cost_prior import believing, prior_price
from services.pricing.domain.followers import linear_response
from services.pricing.domain.game import Solver, play
from services.pricing.domain.influence import leakage


def market_of(n: int, seed: int = 3) -> Market:
    draw = np.random.default_rng(seed)
    ties = np.triu(draw.random((n, n)) * (draw.random((n, n)) < 0.5), 1)
    one = np.ones(n)
    known = leakage(sparse.csr_array(ties + ties.T), hops=3, discount=0.5, isolated="keep")
    return Market(known, one, 0.04 * one, 0.0 * one, 0.02 * draw.uniform(0.5, 2.0, n))


def test_one_device_by_hand() -> None:
    """E[1/ρ] = 2a·ln((r − b(1−s))/(r − b(1+s)))/(2bs) and E[ρ] = (r − b)·ln((1+s)/(1−s))/(4as), a = 1, b = 0.04."""
    market, s, b, weight = market_of(1), 0.5, 0.04, float(market_of(1).accuracy_weight[0])

    def mean_cost(r: float) -> float:
        noise = 2.0 * math.log((r - b * (1 - s)) / (r - b * (1 + s))) / (2 * b * s)
        sold = (r - b) * math.log((1 + s) / (1 - s)) / (4 * s)
        return 0.5 * weight * noise + 0.5 * r * sold

    best = minimize_scalar(mean_cost, bounds=(0.0601, 2.0), method="bounded", options={"xatol": 1e-12}).x
    assert prior_price(market, "exact", 1, s).price == pytest.approx(best, rel=2e-3)


@pytest.mark.parametrize("spread", [0.2, 0.5])
def test_no_other_price_is_cheaper_on_average_over_fresh_cost_draws(spread: float) -> None:
    market, random = market_of(6), np.random.default_rng(9)
    leader = prior_price(market, "exact", 2, spread)
    drawn = []
    for _ in range(400):
        a, b = (1.0 + spread * random.uniform(-1, 1, (2, 6))) * np.array([[1.0], [0.04]])
        drawn.append(Market(market.leakage, a, b, market.cost_fixed, market.accuracy_weight))
    answers = [linear_response(item) for item in drawn]

    def mean_cost(price: float) -> float:
        return float(np.mean([
            server_cost(item, price, answer.budgets(price), 2) for item, answer in zip(drawn, answers, strict=True)
        ]))  # fmt: skip

    own = mean_cost(leader.price)
    assert all(own <= mean_cost(leader.price * factor) for factor in (0.9, 0.95, 1.05, 1.1))
    assert own <= mean_cost(play(market, "exact", 2).price) + 1e-6


@pytest.mark.parametrize("solver", ["exact", "mean-field"])
def test_no_spread_keeps_the_price_and_a_small_one_stays_near(solver: Solver) -> None:
    market = market_of(8)
    sure = play(market, solver, 1)
    assert believing(market, sure, solver, 1, 0.0) is sure
    assert prior_price(market, solver, 1, 1e-9).price == pytest.approx(sure.price, rel=1e-6)
    unsure = believing(market, sure, solver, 1, 0.3)
    assert unsure.status == "ok"
    assert unsure.price == pytest.approx(sure.price, rel=0.1)
    assert unsure.price != sure.price


def test_a_prior_without_a_feasible_price_changes_nothing() -> None:
    """Complete graph, all risk from others: at any price some drawn device would sell less than nothing."""
    complete = leakage(sparse.csr_array(np.ones((4, 4)) - np.eye(4)), hops=5, discount=0.9)
    one = np.ones(4)
    market = Market(complete, one, 0.04 * one, 0.0 * one, 0.02 * one, risk_weight=0.3)
    sure = play(market, "exact", 1)
    assert sure.status == "ok"
    assert math.isnan(prior_price(market, "exact", 1, 0.9).price)
    assert believing(market, sure, "exact", 1, 0.9) is sure


@pytest.mark.parametrize("solver", ["iterate", "agnostic"])
def test_a_prior_is_a_leaders(solver: str) -> None:
    with pytest.raises(ValueError, match="leave it out or choose one of them"):
        StackelbergParameters.read({"solver": solver, "cost_spread": 0.2})

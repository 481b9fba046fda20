"""The market's invariants (spec 1.10) on random instances, and brute force on tiny ones."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from services.pricing.domain.budgets import Market, server_cost, utilities, welfare
from services.pricing.domain.followers import (
    agnostic_budgets,
    best_response,
    equilibrium,
    feasible_interval,
    largest_gain,
    linear_response,
    residual,
)
from services.pricing.domain.game import play
from services.pricing.domain.influence import Vector, leakage
from services.pricing.domain.leaders import agnostic_price, exact_price, frozen_price, iterate, mean_field_price
from services.pricing.domain.welfare import optimum


@st.composite
def markets(draw: st.DrawFn, *, spread: float = 0.2, risk: float = 0.3, sparse: bool | None = None) -> Market:
    """Random markets; quadratic costs within ±`spread`, α up to `risk`, Σ dense or matrix-free."""
    n = draw(st.integers(2, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights = rng.uniform(0.1, 1, (n, n)) * (rng.uniform(size=(n, n)) < draw(st.floats(0.2, 1.0)))
    weights[np.arange(n), (np.arange(n) + 1) % n] = 0.5
    np.fill_diagonal(weights, 0.0)
    limit = 0 if (draw(st.booleans()) if sparse is None else sparse) else 2000
    sigma = leakage(weights, hops=draw(st.integers(1, 6)), discount=draw(st.floats(0.1, 0.8)), dense_limit=limit)
    a = rng.uniform(1 - spread, 1 + spread, n)
    b, c, eps = rng.uniform(0, 0.3, n), rng.uniform(0, 0.1, n), rng.uniform(0.1, 2, n)
    return Market(sigma, a, b, c, eps, draw(st.floats(0.0, risk)), draw(st.floats(0.1, 0.9)))


prices = st.floats(0.0, 3.0)


def by_enumeration(market: Market, price: float) -> list[Vector]:
    """Every equilibrium: all supports tried, the complementary ones kept."""
    n = market.devices
    full = np.column_stack([market.exposure(np.eye(n)[j]) for j in range(n)])
    m, result = market.target(price), []
    for support in product([False, True], repeat=n):
        on = np.array(support)
        rho = np.zeros(n)
        rho[on] = np.linalg.solve(full[np.ix_(on, on)], m[on])
        if (rho >= 0).all() and (full @ rho - m >= -1e-12).all():
            result.append(rho)
    return result


@settings(max_examples=60, deadline=None)
@given(markets(spread=0.9), prices)
def test_the_followers_equilibrium_is_the_only_one_enumeration_finds(market: Market, price: float) -> None:
    """αS < 1 makes A a P-matrix: exactly one equilibrium. Residual below 1e-11 (spec 1.10)."""
    assume(market.contraction < 0.95)
    assume(np.abs(market.target(price)).min() > 1e-6)
    answer = equilibrium(market, price)
    assert answer.converged
    assert answer.residual < 1e-11
    brute = by_enumeration(market, price)
    assert brute
    for other in brute:
        assert answer.budgets == pytest.approx(other, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(markets(spread=0.9, risk=0.99, sparse=False), prices)
def test_an_equilibrium_is_found_even_where_uniqueness_fails(market: Market, price: float) -> None:
    answer = equilibrium(market, price)
    assert answer.converged
    assert answer.residual < 1e-9


@settings(max_examples=60, deadline=None)
@given(markets(), prices)
def test_no_device_gains_on_a_grid_and_the_certificate_says_so(market: Market, price: float) -> None:
    budgets = equilibrium(market, price).budgets
    assert largest_gain(market, price, budgets) < 1e-12
    before = utilities(market, price, budgets)
    for i in range(market.devices):
        for other in np.linspace(0, 2, 41):
            moved = budgets.copy()
            moved[i] = other
            assert utilities(market, price, moved)[i] <= before[i] + 1e-12


@settings(max_examples=60, deadline=None)
@given(markets(), prices, st.integers(0, 2**32))
def test_the_certificate_bounds_every_deviation_from_any_budgets(market: Market, price: float, seed: int) -> None:
    budgets = np.random.default_rng(seed).uniform(0, 1, market.devices)
    promised = largest_gain(market, price, budgets)
    before, gains = utilities(market, price, budgets), []
    for i in range(market.devices):
        for other in np.linspace(0, 2, 201):
            moved = budgets.copy()
            moved[i] = other
            gains.append(utilities(market, price, moved)[i] - before[i])
    assert max(gains) <= promised + 1e-12
    assert max(gains) >= promised - 1e-3  # the grid's step


@settings(max_examples=60, deadline=None)
@given(markets(), st.integers(1, 30))
def test_the_exact_leader_is_cheapest_and_its_followers_are_in_equilibrium(market: Market, t: int) -> None:
    """cost(exact) ≤ cost(mean-field) and ≤ cost on any price grid (spec 1.10)."""
    response = linear_response(market)
    interval = feasible_interval(response)
    assume(not interval.empty)
    exact = play(market, "exact", t, response=response)
    assert exact.status == "ok"
    assert interval.low < exact.price < interval.high
    assert exact.residual < 1e-11
    assert exact.largest_gain < 1e-11
    field = play(market, "mean-field", t, response=response)
    if field.status == "ok":
        assert exact.server_cost <= field.server_cost * (1 + 1e-12)
        assert field.residual < 1e-11
    for price in np.linspace(0.01, 4 * exact.price, 60):
        budgets = equilibrium(market, float(price)).budgets
        assert exact.server_cost <= server_cost(market, float(price), budgets, t) * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(markets(risk=0.1))
def test_prices_fall_from_round_to_round(market: Market) -> None:
    response = linear_response(market)
    assume(not feasible_interval(response).empty)
    for leader in (exact_price, mean_field_price):
        quoted = [leader(market, response, t).price for t in range(1, 6)]
        assert quoted == sorted(quoted, reverse=True)
    assert agnostic_price(market, 1).price > agnostic_price(market, 2).price


@settings(max_examples=40, deadline=None)
@given(markets(risk=0.15), st.integers(1, 10))
def test_algorithm_1_settles_at_the_mean_field_root(market: Market, t: int) -> None:
    response = linear_response(market)
    assume(not feasible_interval(response).empty)
    a = market.cost_quadratic
    assume(market.contraction * (1 + a.max() / a.min()) < 0.9)
    settled = iterate(market, response, t, tolerance=1e-13)
    assert settled.answer.status == "ok"
    assert settled.answer.price == pytest.approx(mean_field_price(market, response, t).price, rel=1e-9)
    assert settled.budgets == pytest.approx(response.budgets(settled.answer.price), abs=1e-9)
    assert frozen_price(market, settled.risk, t).price == settled.answer.price


@settings(max_examples=60, deadline=None)
@given(markets(spread=0.9), prices)
def test_the_optimum_meets_its_optimality_conditions(market: Market, price: float) -> None:
    """KKT: gradient r − Aᵀ(2as + b) ≤ 0, zero where the budget is positive (spec 1.10)."""
    best = optimum(market, price)
    s = market.exposure(best.budgets)
    gradient = price - market.exposure_transposed(2 * market.cost_quadratic * s + market.cost_linear)
    assert (best.budgets >= 0).all()
    assert gradient.max() < 1e-8
    assert np.abs(gradient * best.budgets).max() < 1e-8


@settings(max_examples=60, deadline=None)
@given(markets(spread=0.9), prices)
def test_the_optimum_is_scipys_least_squares(market: Market, price: float) -> None:
    n = market.devices
    full = np.column_stack([market.exposure(np.eye(n)[j]) for j in range(n)])
    c = np.linalg.solve(full.T, np.ones(n))
    wanted = (price * c - market.cost_linear) / (2 * market.cost_quadratic)
    root = np.sqrt(market.cost_quadratic)
    budgets, _ = nnls(root[:, None] * full, root * wanted)
    best = optimum(market, price)
    assert best.budgets == pytest.approx(budgets, abs=1e-8)
    constant = float(np.sum((price * c - market.cost_linear) ** 2 / (4 * market.cost_quadratic)))
    distance = float(np.sum(market.cost_quadratic * (full @ best.budgets - wanted) ** 2))
    assert best.welfare == pytest.approx(constant - distance, abs=1e-9)  # the completed square


@settings(max_examples=60, deadline=None)
@given(markets(spread=0.9), prices)
def test_welfare_orders_optimum_equilibrium_agnostic(market: Market, price: float) -> None:
    """Wf(opt) ≥ Wf(NE) ≥ Wf(SA) at equal price (spec 1.10)."""
    best = optimum(market, price).welfare
    nash = welfare(market, price, equilibrium(market, price).budgets)
    blind = welfare(market, price, agnostic_budgets(market, price))
    assert best >= nash - 1e-12
    assert nash >= blind - 1e-12


@settings(max_examples=40, deadline=None)
@given(markets(risk=0.1), st.integers(1, 10))
def test_the_closed_form_price_of_anarchy_is_the_ratio(market: Market, t: int) -> None:
    """PoA = 1 + Σ r²(1 − c)²/(4a)/Wf(NE), above 1 whenever Σ ≠ 0: Theorem 8 of [MPPFL] is false."""
    outcome = play(market, "mean-field", t)
    assume(outcome.status == "ok" and outcome.welfare > 1e-3)
    assume(optimum(market, outcome.price).interior)
    c = market.solve(np.ones(market.devices), transposed=True).values
    lost = float(np.sum((outcome.price * (1.0 - c)) ** 2 / (4.0 * market.cost_quadratic)))
    closed = (outcome.welfare + lost) / outcome.welfare
    assert outcome.price_of_anarchy == pytest.approx(closed, rel=1e-9)
    if market.risk_weight > 1e-3:
        assert closed > 1


@settings(max_examples=30, deadline=None)
@given(markets(risk=0.0), st.integers(1, 10))
def test_without_leakage_all_leaders_agree_and_anarchy_costs_nothing(market: Market, t: int) -> None:
    outcomes = [play(market, solver, t) for solver in ("exact", "mean-field", "iterate", "agnostic")]
    for outcome in outcomes:
        assert outcome.price == pytest.approx(outcomes[0].price, rel=1e-9)
        assert outcome.price_of_anarchy == pytest.approx(1.0, abs=1e-9) or math.isinf(outcome.price_of_anarchy)
        assert outcome.residual < 1e-12


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.floats(0.0, 0.4), st.floats(0.3, 2.0), st.integers(1, 5))
def test_equal_devices_on_a_complete_graph_have_a_closed_form(n: int, alpha: float, price: float, hops: int) -> None:
    """ρ = (r − b)/(2a(1 + α·sb)), c = 1/(1 + α·sb), sb the row sum of Σ (spec 1.10)."""
    sigma = leakage(np.ones((n, n)) - np.eye(n), hops=hops)
    ones = np.ones(n)
    market = Market(sigma, 0.7 * ones, 0.1 * ones, 0 * ones, ones, alpha)
    row = float(sigma.apply(ones)[0])
    assert equilibrium(market, price).budgets == pytest.approx(ones * (price - 0.1) / 1.4 / (1 + alpha * row))
    assert market.solve(ones, transposed=True).values == pytest.approx(ones / (1 + alpha * row))


@settings(max_examples=40, deadline=None)
@given(markets(sparse=True), prices)
def test_dense_and_matrix_free_markets_answer_alike(market: Market, price: float) -> None:
    sigma = market.leakage
    dense = Market(
        leakage(sigma.forward, hops=sigma.hops, discount=sigma.discount),
        market.cost_quadratic,
        market.cost_linear,
        market.cost_fixed,
        market.accuracy_weight,
        market.risk_weight,
        market.balance,
    )
    assume(market.contraction < 0.95)
    one, other = play(market, price=price), play(dense, price=price)
    assert one.budgets == pytest.approx(other.budgets, abs=1e-10)
    assert one.welfare_optimum == pytest.approx(other.welfare_optimum, abs=1e-9)


@settings(deadline=None)
@given(markets(), prices)
def test_a_best_response_is_never_negative(market: Market, price: float) -> None:
    """Unlike the paper's (6): a device that would sell less than nothing withdraws."""
    risk = np.full(market.devices, 100.0)
    answer = best_response(market, price, risk)
    assert (answer >= 0).all()
    if market.risk_weight > 0.1:
        assert not answer.any()
    assert residual(market, 0.0, np.zeros(market.devices)) == 0.0

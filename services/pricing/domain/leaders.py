"""The unit price the platform posts in a round: exact, mean-field, by the paper's iteration, or blind to the network.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks, section 3.

* exact: minimises the server's cost along the true response ρ(r) = gr − h; its derivative

      D(r) = −(τ/t) Σ ε_i g_i/ρ_i² + (1 − τ)(Σ ρ_i + r Σ g_i)

  rises from −∞ on the interval where every device stays.
* mean-field: the paper's leader, who takes the external risk R as fixed while moving r; at its fixed point

      F(r) = −(τ/t) Σ ε_i u_i/ρ_i(r)² + (1 − τ)(Σ ρ_i(r) + r Σ u_i) = 0,   u_i = 1/(2a_i).

* iterate: Algorithm 1, corrected. * agnostic: one such price for R = 0.

Unlike [MPPFL], prices live above every device's reservation price (below it budgets are negative, so the domain of
Lemma 4 is not (0, ∞)), equation (7) is solved as a bracketed root (iterated as printed it diverges), the price of each
step of Algorithm 1 comes from the new risk, and an empty price interval is the status "infeasible".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy  # loads its submodules on first use

from services.pricing.domain.budgets import Market, check_round, external_risk
from services.pricing.domain.followers import LinearResponse, PriceInterval, best_response, feasible_interval
from services.pricing.domain.influence import Vector

_HALVINGS = 200
_ITERATIONS = 1_000
_SCAN = 2_001
_RUNAWAY = 1e60  # a risk beyond this only grows; stop before it overflows


@dataclass(frozen=True, slots=True)
class LeaderPrice:
    """A leader's price, as one of its solvers returns it.

    Attributes
    ----------
    status : "ok"; "infeasible" (no price keeps every device in); "boundary" (the best price is the interval's edge,
        set by a device whose accuracy does not count); "no mean-field price"; "not converged".
    price : r, nan when there is none.
    iterations : steps of the root finder, or rounds of Algorithm 1.
    """

    status: str
    price: float
    iterations: int


@dataclass(frozen=True, slots=True, eq=False)
class FixedPoint:
    """Where Algorithm 1 stopped: its price, the risk R it assumes and the budgets at that price."""

    answer: LeaderPrice
    risk: Vector
    budgets: Vector


def exact_price(market: Market, response: LinearResponse, round_number: int) -> LeaderPrice:
    """The Stackelberg price: minimises U(r, ρ(r)) over the prices at which every device stays."""
    check_round(round_number)
    interval = feasible_interval(response)
    if interval.empty:
        return LeaderPrice("infeasible", math.nan, 0)
    if not market.accuracy_weight.any():
        return LeaderPrice("ok", 0.0, 0)  # no device's noise costs accuracy: buy nothing
    g, weight = response.slope, market.balance / round_number * market.accuracy_weight
    total = float(g.sum())

    def derivative(price: float) -> float:
        rho = response.budgets(price)
        return float(-np.sum(_weighed(weight * g, rho)) + (1.0 - market.balance) * (rho.sum() + price * total))

    if total > 0:
        return _crossing(derivative, interval)
    return _lowest(market, response, interval, weight)


def mean_field_price(market: Market, response: LinearResponse, round_number: int) -> LeaderPrice:
    """The fixed point of the paper's leader and the followers, result without iterating."""
    check_round(round_number)
    interval = feasible_interval(response)
    if interval.empty:
        return LeaderPrice("infeasible", math.nan, 0)
    if not market.accuracy_weight.any():
        return LeaderPrice("ok", 0.0, 0)
    half = 0.5 / market.cost_quadratic
    weight = market.balance / round_number * market.accuracy_weight * half
    total = float(half.sum())

    def condition(price: float) -> float:
        rho = response.budgets(price)
        return float(-np.sum(_weighed(weight, rho)) + (1.0 - market.balance) * (rho.sum() + price * total))

    if math.isinf(interval.high):
        return _crossing(condition, interval)
    # Some budget falls with the price, so F → −∞ at both ends: take the lowest price where F turns positive.
    grid = _spread(interval)
    values = np.array([condition(price) for price in grid])
    turns = np.flatnonzero((values[:-1] < 0) & (values[1:] >= 0))
    if turns.size == 0:
        return LeaderPrice("no mean-field price", math.nan, _SCAN)
    return _between(condition, float(grid[turns[0]]), float(grid[turns[0] + 1]))


def frozen_price(market: Market, risk: Vector, round_number: int) -> LeaderPrice:
    """The paper's leader for a given external risk R: the root of [MPPFL] eq. (7) as a first-order condition.

    F(r) = −τ/(2t) Σ ε_i/(a_i ρ_i²) + (1 − τ)(r Σ 1/a_i − H),  ρ_i = (r − b_i)/(2a_i) − αR_i,
    H = Σ (b_i/(2a_i) + αR_i),  on r > max {b_i + 2a_i αR_i : ε_i > 0}.
    """
    check_round(round_number)
    if not market.accuracy_weight.any():
        return LeaderPrice("ok", 0.0, 0)
    a, b, held = market.cost_quadratic, market.cost_linear, market.risk_weight * risk
    weight = market.balance / (2.0 * round_number) * market.accuracy_weight / a
    inverse = float(np.sum(1.0 / a))
    h = float(np.sum(b / (2.0 * a) + held))

    def condition(price: float) -> float:
        rho = (price - b) / (2.0 * a) - held
        return float(-np.sum(_weighed(weight, rho)) + (1.0 - market.balance) * (price * inverse - h))

    lowest = float(np.max((b + 2.0 * a * held)[market.accuracy_weight > 0]))
    return _crossing(condition, PriceInterval(lowest, math.inf))


def agnostic_price(market: Market, round_number: int) -> LeaderPrice:
    """The price of a platform that ignores leakage: `frozen_price` at R = 0 (the paper's SA)."""
    return frozen_price(market, np.zeros(market.devices), round_number)


def iterate(market: Market, response: LinearResponse, round_number: int, *, tolerance: float = 1e-3) -> FixedPoint:
    """[MPPFL] Algorithm 1, corrected: budgets answer the price, the price answers the *new* risk, until R settles.

    Stops when max_i |R'_i − R_i|/N ≤ `tolerance` (the paper's ε₀). αS < 1 alone does not prove convergence, because
    the price moves too; αS(1 + max a/min a) < 1 does.
    """
    nothing = np.zeros(market.devices)
    if feasible_interval(response).empty:
        return FixedPoint(LeaderPrice("infeasible", math.nan, 0), nothing, nothing)
    risk, answer = nothing, frozen_price(market, nothing, round_number)
    for iteration in range(1, _ITERATIONS + 1):
        previous, risk = risk, external_risk(market, best_response(market, answer.price, risk))
        if not float(risk.max()) < _RUNAWAY:
            break
        answer = frozen_price(market, risk, round_number)
        if answer.status != "ok":
            break
        if float(np.abs(risk - previous).max()) / market.devices <= tolerance:
            settled = LeaderPrice("ok", answer.price, iteration)
            return FixedPoint(settled, risk, best_response(market, answer.price, risk))
    return FixedPoint(LeaderPrice("not converged", math.nan, iteration), nothing, nothing)


def _weighed(weight: Vector, rho: Vector) -> Vector:
    """weight/ρ², 0 where the weight is 0, so that a device whose accuracy does not count may sell nothing."""
    out = np.zeros(rho.size)
    with np.errstate(divide="ignore", over="ignore"):
        np.divide(weight, np.square(rho), out=out, where=weight != 0)
    return out


def _crossing(condition: Callable[[float], float], interval: PriceInterval) -> LeaderPrice:
    """Root of an increasing condition on an open interval, searched from a point inside towards both ends."""
    low, high = interval.low, interval.high
    width = max(1.0, abs(low)) if math.isinf(high) else (high - low) / 2.0
    left = right = low + width
    for halving in range(_HALVINGS):
        if condition(left) < 0:
            break
        right, left = left, low + width * 0.5 ** (halving + 1)
    else:
        return LeaderPrice("boundary", low, _HALVINGS)
    for doubling in range(_HALVINGS):
        if condition(right) > 0:
            return _between(condition, left, right)
        left = right
        step = 2.0 ** (doubling + 1)
        right = low + width * step if math.isinf(high) else high - width / step
    return LeaderPrice("boundary", high, _HALVINGS)


def _between(condition: Callable[[float], float], left: float, right: float) -> LeaderPrice:
    root, report = scipy.optimize.brentq(
        condition, left, right, xtol=1e-300, rtol=8.9e-16, maxiter=500, full_output=True
    )
    return LeaderPrice("ok", float(root), int(report.iterations))


def _spread(interval: PriceInterval) -> Vector:
    """Prices inside a bounded interval, dense towards both ends."""
    angle = np.pi * np.arange(1, _SCAN + 1) / (_SCAN + 1)
    return interval.low + (interval.high - interval.low) * 0.5 * (1.0 - np.cos(angle))


def _lowest(market: Market, response: LinearResponse, interval: PriceInterval, weight: Vector) -> LeaderPrice:
    """The cheapest price of a bounded interval where total budgets fall with it (Σg ≤ 0); cost may not be convex."""

    def cost(price: float) -> float:
        rho = response.budgets(price)
        noise = float(np.sum(np.divide(weight, rho, out=np.zeros(rho.size), where=weight > 0)))
        return noise + (1.0 - market.balance) * price * float(rho.sum())

    grid = _spread(interval)
    best = int(np.argmin([cost(price) for price in grid]))
    left, right = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, _SCAN - 1)])
    result = scipy.optimize.minimize_scalar(cost, bounds=(left, right), method="bounded", options={"xatol": 1e-12})
    return LeaderPrice("ok", float(result.x), _SCAN + int(result.nfev))

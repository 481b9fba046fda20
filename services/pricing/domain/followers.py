"""The budgets devices sell at a posted price: their Nash equilibrium as a linear complementarity problem.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks, section 3.1.

With m_i = (r − b_i)/(2a_i) and A = I + αΣ, budgets ρ are an equilibrium exactly when

    ρ ≥ 0,  w = Aρ − m ≥ 0,  ρ_i w_i = 0.

If αS < 1, A is strictly row-diagonally dominant, hence a P-matrix: one equilibrium for every price. Where every device
stays, ρ(r) = gr − h with g = A⁻¹u, h = A⁻¹v, u_i = 1/(2a_i), v_i = b_i/(2a_i).

Unlike [MPPFL] eq. (6), a best response is never negative: a device that would sell less than nothing withdraws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from services.pricing.domain.budgets import Market, check_price, external_risk
from services.pricing.domain.complementarity import Complementary, Mask, block_pivot, lemke
from services.pricing.domain.influence import Vector

_STEPS = 5_000


@dataclass(frozen=True, slots=True, eq=False)
class Equilibrium:
    """Budgets at a price.

    Attributes
    ----------
    budgets : ρ ≥ 0, shape (n,).
    residual : max |min(ρ, Aρ − m)|, zero exactly at an equilibrium.
    iterations : best-response steps taken.
    converged : whether the residual is at rounding level.
    """

    budgets: Vector
    residual: float
    iterations: int
    converged: bool


@dataclass(frozen=True, slots=True, eq=False)
class LinearResponse:
    """ρ(r) = slope·r − intercept (g and h), valid while no entry is negative; `iterations` of the two solves."""

    slope: Vector
    intercept: Vector
    iterations: int

    def budgets(self, price: float) -> Vector:
        """gr − h."""
        return self.slope * price - self.intercept


@dataclass(frozen=True, slots=True)
class PriceInterval:
    """The open interval of prices at which every device stays; empty when low ≥ high."""

    low: float
    high: float

    @property
    def empty(self) -> bool:
        """Whether no price keeps every device in."""
        return self.low >= self.high


def best_response(market: Market, price: float, risk: Vector) -> Vector:
    """ρ_i = max(0, (r − b_i)/(2a_i) − αR_i), the answer to a risk taken as given ([MPPFL] eq. 6, projected)."""
    return np.maximum(0.0, market.target(price) - market.risk_weight * risk)


def agnostic_budgets(market: Market, price: float) -> Vector:
    """max(0, m): the budgets of devices that ignore the others (the paper's SA)."""
    return np.maximum(0.0, market.target(price))


def residual(market: Market, price: float, budgets: Vector) -> float:
    """max |min(ρ, Aρ − m)|."""
    gap = np.minimum(budgets, market.exposure(budgets) - market.target(price))
    return float(np.abs(gap).max(initial=0.0))


def largest_gain(market: Market, price: float, budgets: Vector) -> float:
    """The most any device could gain by changing its own budget alone: the no-profitable-deviation certificate.

    A device's utility is a parabola in its own budget, so the best deviation is the best response itself and

        gain_i = U_i(ρ*) − U_i(ρ_i),   ρ* = max(0, m_i − αR_i).
    """
    risk = external_risk(market, budgets)
    better = best_response(market, price, risk)
    a, b, held = market.cost_quadratic, market.cost_linear, market.risk_weight * risk
    exposed, would = budgets + held, better + held
    gains = price * (better - budgets) - (a * (would + exposed) + b) * (would - exposed)
    return float(gains.max(initial=0.0))


def equilibrium(market: Market, price: float) -> Equilibrium:
    """Return the followers' Nash equilibrium at `price`.

    Best responses to each other contract by αS in the max norm; when Σ is dense, one exact solve on the support ends
    them. When αS ≥ 1 an equilibrium still exists (A is strictly copositive) but need not be unique: Lemke's method
    finds one, and above the dense limit damped best responses try and report whether they converged.
    """
    check_price(price)
    target = market.target(price)
    if market.contraction >= 1.0 and market.leakage.matrix is not None:
        solved = lemke(np.eye(market.devices) + market.risk_weight * market.leakage.matrix, -target)
        refined = _polished(market, price, solved.values, solved.iterations, pivots=1)
        return refined if refined.converged else _judged(market, price, solved)
    damping = 1.0 if market.contraction < 1.0 else 1.0 / (1.0 + market.contraction)
    budgets = np.maximum(0.0, target)
    tolerance = 1e-15 * max(float(np.abs(target).max()), np.finfo(float).tiny)
    for iteration in range(1, _STEPS + 1):
        answer = best_response(market, price, external_risk(market, budgets))
        step = damping * (answer - budgets)
        budgets = budgets + step
        if np.abs(step).max() <= tolerance:
            break
        if market.leakage.matrix is not None and market.contraction**iteration < 1e-3:
            return _polished(market, price, budgets, iteration)
    return _judged(market, price, Complementary(budgets, iteration, True))


def _polished(market: Market, price: float, budgets: Vector, iterations: int, *, pivots: int = 10_000) -> Equilibrium:
    """Pivot to the exact solution, starting from the support of `budgets`."""
    assert market.leakage.matrix is not None
    matrix = np.eye(market.devices) + market.risk_weight * market.leakage.matrix
    target = market.target(price)

    def solve_on(support: Mask) -> Vector:
        x = np.zeros(target.size)
        x[support] = np.linalg.solve(matrix[np.ix_(support, support)], target[support])
        return x

    scale = float(np.abs(target).max())
    solved = block_pivot(solve_on, lambda x: matrix @ x - target, budgets > 0, scale=scale, limit=pivots)
    return _judged(market, price, Complementary(solved.values, iterations + solved.iterations, solved.converged))


def _judged(market: Market, price: float, solved: Complementary) -> Equilibrium:
    left = residual(market, price, solved.values)
    scale = max(1.0, float(np.abs(market.target(price)).max()))
    return Equilibrium(solved.values, left, solved.iterations, solved.converged and left <= 1e-11 * scale)


def linear_response(market: Market) -> LinearResponse:
    """g and h: two solves serve the prices of all rounds."""
    half = 0.5 / market.cost_quadratic
    slope = market.solve(half)
    intercept = market.solve(market.cost_linear * half)
    return LinearResponse(slope.values, intercept.values, slope.iterations + intercept.iterations)


def feasible_interval(response: LinearResponse) -> PriceInterval:
    """(r_lo, r_hi): every ρ_i(r) > 0 strictly inside.

    g_i < 0 is possible: a device with dear privacy leaves when the price rises, because the others leak more.
    """
    g, h = response.slope, response.intercept
    rising, falling, flat = g > 0, g < 0, g == 0
    if (h[flat] >= 0).any():
        return PriceInterval(math.inf, math.inf)
    low = float(np.max(h[rising] / g[rising], initial=-math.inf))
    high = float(np.min(h[falling] / g[falling], initial=math.inf))
    return PriceInterval(max(low, 0.0), high)

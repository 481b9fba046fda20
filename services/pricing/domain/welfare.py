"""The largest welfare the devices could reach together, and how far selfish play stays below: the price of anarchy.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks, section 4.

With c = A⁻ᵀ1 and s* = (rc − b)/(2a), completing the square gives

    Wf(ρ) = Σ (r c_i − b_i)²/(4a_i) − Σ a_i (s_i − s*_i)²,   s = Aρ,

so the optimum is A⁻¹s* when that is not negative, else the non-negative least squares of √a(Aρ − s*).

Unlike [MPPFL] Theorem 8, the price of anarchy of the mechanism does not tend to 1: at an interior equilibrium it is
1 + Σ r²(1 − c_i)²/(4a_i)/Wf(NE), above 1 whenever Σ ≠ 0. The theorem takes the equilibrium itself for the optimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from services.pricing.domain.budgets import Market, check_price, welfare
from services.pricing.domain.complementarity import Mask, block_pivot
from services.pricing.domain.influence import Vector


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """The welfare-maximising budgets at a price.

    `interior` says that the closed form held; otherwise `iterations` counts the pivots of the least squares.
    """

    budgets: Vector
    welfare: float
    interior: bool
    iterations: int


def optimum(market: Market, price: float) -> Optimum:
    """max_{ρ ≥ 0} Wf(r, ρ): strictly concave, hence unique."""
    check_price(price)
    c = market.solve(np.ones(market.devices), transposed=True)
    wanted = (price * c.values - market.cost_linear) / (2.0 * market.cost_quadratic)
    free = market.solve(wanted)
    if (free.values >= 0).all():
        return Optimum(free.values, welfare(market, price, free.values), True, c.iterations + free.iterations)
    solver = _dense_least_squares if market.leakage.matrix is not None else _sparse_least_squares
    budgets, iterations = solver(market, wanted, free.values)
    return Optimum(budgets, welfare(market, price, budgets), False, iterations)


def _dense_least_squares(market: Market, wanted: Vector, guess: Vector) -> tuple[Vector, int]:
    assert market.leakage.matrix is not None
    a = market.cost_quadratic
    full = np.eye(market.devices) + market.risk_weight * market.leakage.matrix
    hessian, linear = full.T @ (a[:, None] * full), full.T @ (a * wanted)

    def solve_on(support: Mask) -> Vector:
        x = np.zeros(linear.size)
        x[support] = np.linalg.solve(hessian[np.ix_(support, support)], linear[support])
        return x

    scale = float(np.abs(linear).max())
    solved = block_pivot(solve_on, lambda x: hessian @ x - linear, guess > 0, scale=scale)
    return solved.values, solved.iterations


def _sparse_least_squares(market: Market, wanted: Vector, guess: Vector) -> tuple[Vector, int]:
    """The same pivots with conjugate gradients on the support; each product costs 2K sparse ones."""
    a = market.cost_quadratic
    last: Vector = np.maximum(guess, 0.0)

    def hessian(x: Vector) -> Vector:
        return market.exposure_transposed(a * market.exposure(x))

    linear = market.exposure_transposed(a * wanted)

    def solve_on(support: Mask) -> Vector:
        nonlocal last
        mask = support.astype(np.float64)
        restricted = LinearOperator(
            (mask.size, mask.size), matvec=lambda x: mask * hessian(mask * x) + (1.0 - mask) * x, dtype=np.float64
        )
        last, _ = cg(restricted, mask * linear, x0=mask * last, rtol=1e-13, maxiter=500)
        last = np.asarray(mask * last, dtype=np.float64)
        return last

    scale = 1e3 * float(np.abs(linear).max())  # CG solves the support's equations only to this accuracy
    solved = block_pivot(solve_on, lambda x: hessian(x) - linear, guess > 0, scale=scale, limit=200)
    return solved.values, solved.iterations


def price_of_anarchy(best: float, achieved: float) -> float:
    """max Wf / Wf(ρ) at the same price ([MPPFL] eq. 11): nan if even the best is not positive, +inf if only it is."""
    if best <= 0:
        return math.nan
    return math.inf if achieved <= 0 else best / achieved

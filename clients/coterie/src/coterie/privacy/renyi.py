"""Rényi differential privacy: a loss per order α, which adds up over releases of any kind.

I. Mironov, "Rényi Differential Privacy" (2017). Losses are vectors over the fixed `ORDERS`, so that a ledger can keep
one running vector, whatever the length of its history. Every function returns an upper bound at every order.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.preconditions import check_delta, check_not_negative, check_positive

# Dense just above 1 for large losses, sparse and wide for tiny ones. Part of the ledger's file format: after a change
# every ledger rebuilds its running vector.
ORDERS: NDArray[np.float64] = np.concatenate(
    [
        1.0 + np.geomspace(0.001, 0.1, 21),
        np.arange(1.15, 11.0, 0.1),
        np.arange(11.0, 64.0),
        np.geomspace(64.0, 2.0**20, 57).round(),
    ]
)
ORDERS.setflags(write=False)


def gaussian_loss(rho: float) -> NDArray[np.float64]:
    """Loss ρα of zero-concentrated privacy, which Gaussian noise attains exactly with ρ = 1/(2σ²)."""
    return check_not_negative("rho", rho) * ORDERS


def laplace_loss(epsilon: float) -> NDArray[np.float64]:
    """Loss of Laplace noise whose scale is the L1 sensitivity divided by ε; Mironov (2017), Proposition 6.

        ln( α/(2α−1) e^{(α−1)ε} + (α−1)/(2α−1) e^{−αε} ) / (α−1)

    Many coordinates are no worse than one: the expression is convex in the shift and 0 at 0, so that an L1 budget
    spent on a single coordinate is the worst case.
    """
    check_positive("epsilon", epsilon)
    if math.isinf(epsilon):
        return np.full_like(ORDERS, math.inf)
    excess = ORDERS - 1.0
    up = np.log(ORDERS / (2.0 * ORDERS - 1.0)) + excess * epsilon
    down = np.log(excess / (2.0 * ORDERS - 1.0)) - ORDERS * epsilon
    return np.clip(np.logaddexp(up, down) / excess, 0.0, epsilon)


def epsilon_of_loss(loss: NDArray[np.float64], delta: float) -> float:
    """Smallest ε at δ over the orders: min_α loss(α) + ln(1 − 1/α) − ln(αδ)/(α − 1), never below 0.

    Canonne, Kamath, Steinke (2020), Proposition 12; 0 is returned for a loss of zero.
    """
    check_delta(delta)
    if loss.shape != ORDERS.shape:
        raise ValueError(f"a loss has one entry per order, {ORDERS.size}, got shape {loss.shape}")
    if not bool(np.any(loss > 0.0)):
        return 0.0
    epsilons = loss + np.log1p(-1.0 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1.0)
    return max(0.0, float(np.min(epsilons)))

"""Rényi differential privacy: a loss per order α, which adds up over releases of any kind.

I. Mironov, "Rényi Differential Privacy" (2017). Losses are vectors over the fixed `ORDERS`, so that a ledger can keep
one running vector however long its history is. Every function returns an upper bound at every order.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.preconditions import check_delta, check_not_negative, check_positive, check_rate

# Dense just above 1 for large losses, sparse and wide for tiny ones. Part of the ledger's file format: changing it
# asks every ledger to rebuild its running vector.
ORDERS: NDArray[np.float64] = np.concatenate(
    [
        1.0 + np.geomspace(0.001, 0.1, 21),
        np.arange(1.15, 11.0, 0.1),
        np.arange(11.0, 64.0),
        np.geomspace(64.0, 2.0**20, 57).round(),
    ]
)
ORDERS.setflags(write=False)

_STEPS_PER_DEVIATION = 16.0
_TAIL_DEVIATIONS = 14.0
_LARGEST_SAMPLED_ORDER = 2048.0  # binomial sums grow with the order; above it the unsampled bound is kept
_ROUNDING = 1e-14  # more than the error of any logarithm of a moment near 0


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


def pure_loss(epsilon: float) -> NDArray[np.float64]:
    """Loss of any ε-private release: that of randomised response, its worst case.

        ln( (e^{αε} + e^{(1−α)ε}) / (1 + e^ε) ) / (α−1),  never above ε

    Two outcomes of likelihood ratio e^{±ε} dominate every ε-private pair (P. Kairouz, S. Oh, P. Viswanath, "The
    Composition Theorem for Differential Privacy", 2015).
    """
    check_not_negative("epsilon", epsilon)
    if math.isinf(epsilon):
        return np.full_like(ORDERS, math.inf)
    moment = np.logaddexp(ORDERS * epsilon, (1.0 - ORDERS) * epsilon) - np.logaddexp(0.0, epsilon)
    return np.asarray(np.clip(moment / (ORDERS - 1.0), 0.0, epsilon), dtype=np.float64)


def sampled_gaussian_loss(multiplier: float, rate: float) -> NDArray[np.float64]:
    """Loss of Gaussian noise on a sum over records each used with probability `rate` (Poisson sampling).

    I. Mironov, K. Talwar, L. Zhang, "Rényi Differential Privacy of the Sampled Gaussian Mechanism" (2019): the loss
    of adding or removing one record is ln A(α)/(α−1) with, for x drawn from N(0, σ²),

        A(α) = E[ (1 − q + q e^{(2x−1)/(2σ²)})^α ].

    Whole orders use the binomial sum of the paper's Section 3.3; the others integrate A, whose integrand is positive
    and smooth, by the trapezoid rule. The loss never exceeds that of the unsampled mechanism.
    """
    check_positive("noise multiplier", multiplier)
    unsampled = gaussian_loss(0.5 / multiplier / multiplier)
    if check_rate(rate) == 1.0 or math.isinf(multiplier):
        return unsampled
    return np.minimum(_sampled_loss(multiplier, rate), unsampled)


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


@lru_cache(maxsize=64)
def _sampled_loss(multiplier: float, rate: float) -> NDArray[np.float64]:
    moments = np.array([_log_moment(float(order), multiplier, rate) for order in ORDERS])
    loss = np.maximum(moments + _ROUNDING, 0.0) / (ORDERS - 1.0)
    loss.setflags(write=False)
    return loss


def _log_moment(order: float, multiplier: float, rate: float) -> float:
    if order > _LARGEST_SAMPLED_ORDER:
        return math.inf
    if order == math.floor(order):
        return _log_moment_of_whole_order(int(order), multiplier, rate)
    return _log_moment_by_quadrature(order, multiplier, rate)


def _log_moment_of_whole_order(order: int, multiplier: float, rate: float) -> float:
    from scipy.special import gammaln, logsumexp

    used = np.arange(order + 1.0)
    log_terms = (
        gammaln(order + 1.0)
        - gammaln(used + 1.0)
        - gammaln(order - used + 1.0)
        + (order - used) * math.log1p(-rate)
        + used * math.log(rate)
        + used * (used - 1.0) / (2.0 * multiplier * multiplier)
    )
    return float(logsumexp(log_terms))


def _log_moment_by_quadrature(order: float, multiplier: float, rate: float) -> float:
    from scipy.special import logsumexp

    # The integrand's logarithm grows at most like that of N(order, σ²); its complex singularities lie πσ² off the
    # real axis, hence the step shrinks with σ² when σ is small.
    step = min(multiplier, multiplier * multiplier) / _STEPS_PER_DEVIATION
    tail = _TAIL_DEVIATIONS * multiplier
    x = np.arange(-tail, order + tail, step)
    ratio = (2.0 * x - 1.0) / (2.0 * multiplier * multiplier)
    log_density = -0.5 * (x / multiplier) ** 2 - math.log(multiplier) - 0.5 * math.log(2.0 * math.pi)
    log_terms = log_density + order * np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)
    return float(logsumexp(log_terms)) + math.log(step)

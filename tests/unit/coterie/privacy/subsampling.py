"""What a guarantee is worth when each record is used only with some probability.

[SCFL] eq (10), the amplification of B. Balle, G. Barthe, M. Gaboardi, "Privacy Amplification by Subsampling" (2018).
It turns one (ε, δ) into another; many rounds compose far better through `sampled_gaussian_loss`. No task amplifies by
sampling: the table of docs/papers/scfl.md, which this module reproduces, shows why.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.preconditions import check_not_negative, check_positive
from coterie.privacy.renyi import ORDERS, gaussian_loss

_STEPS_PER_DEVIATION = 16.0
_TAIL_DEVIATIONS = 14.0
_LARGEST_SAMPLED_ORDER = 2048.0  # binomial sums grow with the order; above it the unsampled bound holds
_ROUNDING = 1e-14  # more than the error of any logarithm of a moment near 0


def check_rate(rate: float) -> float:
    """Return a sampling probability in (0, 1]; ValueError for any other."""
    if not 0.0 < rate <= 1.0:
        raise ValueError(f"sampling rate must lie in (0, 1], got {rate}")
    return rate


class Guarantee(NamedTuple):
    """An (ε, δ) pair."""

    epsilon: float
    delta: float


def amplify(epsilon: float, delta: float, rate: float) -> Guarantee:
    """ε' = ln(1 + λ(e^ε − 1)), δ' = λδ at sampling rate λ: [SCFL] eq (10), free of overflow.

    Never above ε; equal to it only at rate 1 (or ε = 0).
    """
    check_not_negative("epsilon", epsilon)
    if check_rate(rate) == 1.0 or math.isinf(epsilon):
        return Guarantee(epsilon, rate * check_not_negative("delta", delta))
    if epsilon < 1.0:
        amplified = math.log1p(rate * math.expm1(epsilon))
    else:
        amplified = epsilon + math.log(rate + (1.0 - rate) * math.exp(-epsilon))
    return Guarantee(min(epsilon, amplified), rate * check_not_negative("delta", delta))


def before_sampling(epsilon: float, delta: float, rate: float) -> Guarantee:
    """The guarantee a mechanism may have on its sample to give (ε, δ) overall: the inverse of `amplify`."""
    check_not_negative("epsilon", epsilon)
    if check_rate(rate) == 1.0 or math.isinf(epsilon):
        return Guarantee(epsilon, check_not_negative("delta", delta) / rate)
    if epsilon < 1.0:
        wanted = math.log1p(math.expm1(epsilon) / rate)
    else:
        wanted = epsilon - math.log(rate) + math.log1p((rate - 1.0) * math.exp(-epsilon))
    return Guarantee(max(epsilon, wanted), check_not_negative("delta", delta) / rate)


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

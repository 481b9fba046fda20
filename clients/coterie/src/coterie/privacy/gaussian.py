"""How much Gaussian noise gives an (ε, δ) guarantee, by the paper's formula and exactly.

A *noise multiplier* σ is the standard deviation of the noise divided by the L2 sensitivity of what is released. Two
calibrations: [SCFL] eq (9), σ = √(2 ln(1.25/δ))/ε, whose proof needs ε ≤ 1; and the exact one, which solves
B. Balle and Y.-X. Wang, "Improving the Gaussian Mechanism for Differential Privacy" (2018), Theorem 8:

    δ(σ, ε) = Φ(1/(2σ) − εσ) − e^ε Φ(−1/(2σ) − εσ).

Written with h = 1/(2σ), c = εσ, the identity e^ε φ(c + h) = φ(c − h) turns this into

    δ(σ, ε) = φ(c − h) · (M(c − h) − M(c + h)),     M(x) = Φ(−x)/φ(x) = √(π/2) erfcx(x/√2),

which neither overflows in e^ε nor loses digits to the difference of two nearly equal probabilities.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from coterie.privacy import zcdp
from coterie.privacy.preconditions import check_delta, check_not_negative, check_positive

# Widens the root by far more than its error, so that rounding never yields too little noise.
_SAFETY = 1.0 + 1e-11
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def paper_multiplier(epsilon: float, delta: float) -> float:
    """Noise multiplier of [SCFL] eq (9), √(2 ln(1.25/δ))/ε; a guarantee only for ε ≤ 1.

    Unlike [SCFL], which uses it up to ε = 41, real tasks use `exact_multiplier`: at ε = 41 the formula's true δ is
    6 % where 1e-6 is claimed. Infinite ε gives 0.
    """
    check_positive("epsilon", epsilon)
    check_delta(delta)
    return math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


def exact_delta(multiplier: float, epsilon: float) -> float:
    """Smallest δ for which Gaussian noise of this multiplier is (ε, δ) private; 1 without noise, 0 with infinite."""
    return math.exp(
        _log_delta(check_not_negative("noise multiplier", multiplier), check_not_negative("epsilon", epsilon))
    )


def exact_epsilon(multiplier: float, delta: float) -> float:
    """Smallest ε ≥ 0 for which Gaussian noise of this multiplier is (ε, δ) private; infinite without noise."""
    from scipy.optimize import brentq

    check_delta(delta)
    if check_not_negative("noise multiplier", multiplier) == 0.0:
        return math.inf
    target = math.log(delta)
    if math.isinf(multiplier) or _log_delta(multiplier, 0.0) <= target:
        return 0.0
    root = brentq(
        lambda epsilon: _log_delta(multiplier, epsilon) - target,
        0.0,
        zcdp.epsilon_of_rho(zcdp.rho_of_multiplier(multiplier), delta),
        xtol=1e-300,
        rtol=1e-14,
        maxiter=500,
    )
    return float(root) * _SAFETY


def exact_multiplier(epsilon: float, delta: float) -> float:
    """Smallest noise multiplier σ for which the Gaussian mechanism is (ε, δ) private.

    Solves δ(σ, ε) = δ on a bracket: the multipliers of zero-concentrated privacy and of ε = 0 always suffice, and
    repeated halving gives one that does not. Sound for every ε > 0; infinite ε gives 0.

    Examples:
        >>> round(exact_multiplier(1.0, 1e-5), 4)
        3.7306
    """
    from scipy.optimize import brentq

    check_positive("epsilon", epsilon)
    target = math.log(check_delta(delta))
    if math.isinf(epsilon):
        return 0.0
    high = min(_enough_at_none(delta), zcdp.multiplier_of_rho(zcdp.rho_of_epsilon(epsilon, delta)))
    low = 0.5 * high
    while _log_delta(low, epsilon) <= target:
        low *= 0.5
    root = brentq(
        lambda log_sigma: _log_delta(math.exp(log_sigma), epsilon) - target,
        math.log(low),
        math.log(high),
        xtol=1e-13,
        rtol=1e-14,
    )
    return math.exp(float(root)) * _SAFETY


def exact_multipliers(epsilons: NDArray[np.float64], delta: float) -> NDArray[np.float64]:
    """`exact_multiplier` of every entry (all positive and finite), by bisection on the whole array at once."""
    epsilon = np.asarray(epsilons, dtype=np.float64)
    if not bool(np.all((epsilon > 0.0) & np.isfinite(epsilon))):
        raise ValueError(f"every epsilon must be positive and finite, got {epsilon!r}; drop devices without noise")
    target, root = math.log(check_delta(delta)), math.sqrt(math.log(1.0 / delta))
    with np.errstate(over="ignore"):
        high = np.log((np.sqrt(root * root + epsilon) + root) / epsilon / math.sqrt(2.0))  # enough, by zCDP
    high = np.minimum(high, math.log(_enough_at_none(delta)))
    low = high - 1.0
    while bool(np.any(private := _log_deltas(np.exp(low), epsilon) <= target)):
        low = np.where(private, low - 1.0, low)
    for _ in range(48):
        middle = 0.5 * (low + high)
        private = _log_deltas(np.exp(middle), epsilon) <= target
        high = np.where(private, middle, high)
        low = np.where(private, low, middle)
    return np.asarray(np.exp(high) * _SAFETY, dtype=np.float64)


def _enough_at_none(delta: float) -> float:
    """A multiplier that suffices for (0, δ), and so at every ε: δ(σ, 0) = 2Φ(1/2σ) − 1 < 1/(σ√2π).

    The bound of zero-concentrated privacy alone grows without limit as ε falls, until it overflows.
    """
    return 1.01 / (delta * math.sqrt(2.0 * math.pi))


def _log_delta(multiplier: float, epsilon: float) -> float:
    if multiplier == 0.0:
        return 0.0 if math.isfinite(epsilon) else -math.inf
    if math.isinf(multiplier) or math.isinf(epsilon):
        return -math.inf
    return float(_log_deltas(np.float64(multiplier), np.float64(epsilon)))


def _log_deltas(
    multiplier: NDArray[np.float64] | np.float64, epsilon: NDArray[np.float64] | np.float64
) -> NDArray[np.float64] | np.float64:
    from scipy.special import ndtr

    half, centre = 0.5 / multiplier, epsilon * multiplier
    near, far = centre - half, _mills(centre + half)
    # c < h: Φ(h − c) is at least a half and M(c − h) may overflow, so the first product is taken as a probability.
    density = np.exp(-0.5 * near * near - _LOG_SQRT_2PI)
    direct = ndtr(-near) - density * far
    ratio = _mills(np.maximum(near, 0.0)) - far
    with np.errstate(divide="ignore"):
        in_tail = -0.5 * near * near - _LOG_SQRT_2PI + np.log(np.maximum(ratio, 0.0))
        return np.where(near < 0.0, np.log(np.maximum(direct, 0.0)), in_tail)


def _mills(x: NDArray[np.float64] | np.float64) -> NDArray[np.float64] | np.float64:
    from scipy.special import erfcx

    return np.asarray(math.sqrt(0.5 * math.pi) * erfcx(x / math.sqrt(2.0)), dtype=np.float64)

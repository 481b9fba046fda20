"""Zero-concentrated differential privacy: one number ρ per release that simply adds up.

M. Bun and T. Steinke, "Concentrated Differential Privacy" (2016). A release is ρ-zCDP when its Rényi divergence of
every order α between neighbouring inputs is at most ρα; Gaussian noise of multiplier σ has ρ = 1/(2σ²). [MPPFL] and
[DPVD] price and schedule privacy in ρ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from coterie.privacy.preconditions import check_delta, check_not_negative, check_positive


def rho_of_multiplier(multiplier: float) -> float:
    """ρ = 1/(2σ²) of Gaussian noise with multiplier σ; infinite without noise, 0 with infinite noise."""
    if check_not_negative("noise multiplier", multiplier) == 0.0:
        return math.inf
    return 0.5 / multiplier / multiplier


def multiplier_of_rho(rho: float) -> float:
    """σ = 1/√(2ρ), the inverse of `rho_of_multiplier`; ρ = 0 gives infinity."""
    return math.inf if check_not_negative("rho", rho) == 0.0 else 1.0 / math.sqrt(2.0 * rho)


def rho_of_variance(variance: float, clip_norm: float, samples: int) -> float:
    """ρ = 2S²/(D²δ²) of a mean of D per-example gradients clipped to S, released with noise of variance δ².

    [MPPFL] noise law and [DPVD] ρ = 2(M/(Xσ))²: replacing one example moves the mean by at most Δ = 2S/D, and
    Gaussian noise has ρ = Δ²/(2δ²). No noise gives infinity.
    """
    sensitivity = _mean_sensitivity(clip_norm, samples)
    if check_not_negative("variance", variance) == 0.0:
        return math.inf
    return 0.5 * sensitivity * sensitivity / variance


def variance_of_rho(rho: float, clip_norm: float, samples: int) -> float:
    """δ² = 2S²/(D²ρ), the inverse of `rho_of_variance`; ρ = 0 (the device withdraws) gives infinity."""
    sensitivity = _mean_sensitivity(clip_norm, samples)
    return math.inf if check_not_negative("rho", rho) == 0.0 else 0.5 * sensitivity * sensitivity / rho


def compose(rhos: Iterable[float]) -> float:
    """Total ρ of releases on the same data, chosen adaptively or not: their sum."""
    return math.fsum(check_not_negative("rho", rho) for rho in rhos)


def epsilon_of_rho(rho: float, delta: float) -> float:
    """ε = ρ + 2√(ρ ln(1/δ)): Bun and Steinke, Proposition 1.3; the conversion of the pricing papers."""
    check_delta(delta)
    return check_not_negative("rho", rho) + 2.0 * math.sqrt(rho * math.log(1.0 / delta))


def rho_of_epsilon(epsilon: float, delta: float) -> float:
    """Largest ρ whose `epsilon_of_rho` is at most ε: (√(ln(1/δ) + ε) − √ln(1/δ))², free of cancellation."""
    root = math.sqrt(math.log(1.0 / check_delta(delta)))
    if math.isinf(check_not_negative("epsilon", epsilon)):
        return math.inf
    return (epsilon / (math.sqrt(root * root + epsilon) + root)) ** 2


def _mean_sensitivity(clip_norm: float, samples: int) -> float:
    if samples < 1:
        raise ValueError(f"a mean needs at least one sample, got {samples}")
    return 2.0 * check_positive("clip norm", clip_norm) / samples

"""How much noise each scheduled device adds: the inner convex problem of the cell scheduler.

[DPVD] "Optimizing Communication and Device Clustering for Clustered Federated Learning with Differential Privacy".
Symbols: M clipping bound, X_i samples, σ_i noise deviation, d model dimension, L smoothness, γ privacy weight.

    minimise   (d²/2L) max_i σ_i²  +  γ Σ_i ρ_i,     ρ_i = 2 (M / (X_i σ_i))²,     low_i ≤ σ_i ≤ high_i

A larger γ buys privacy, hence *more* noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from services.kit.errors import InvalidInput

Floats = NDArray[np.float64]


class InvalidNoiseProblem(InvalidInput):
    """A noise problem whose numbers make no sense."""


@dataclass(frozen=True, slots=True)
class NoiseWeights:
    """The constants of the noise problem; the defaults are the specification's.

    clip: bound M on one sample's gradient norm, > 0.  dimension: d > 0.  smoothness: L > 0.  privacy_weight: γ ≥ 0.
    """

    clip: float = 1.0
    dimension: float = 1.0
    smoothness: float = 10.0
    privacy_weight: float = 1e-2

    def __post_init__(self) -> None:
        for name in ("clip", "dimension", "smoothness"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise InvalidNoiseProblem(f"{name} is {value}; give a finite number above 0")
        if not (np.isfinite(self.privacy_weight) and self.privacy_weight >= 0):
            raise InvalidNoiseProblem(f"privacy_weight is {self.privacy_weight}; give a finite number, 0 or more")

    @property
    def loss_weight(self) -> float:
        """d²/2L, the price of one unit of the largest noise variance."""
        return self.dimension**2 / (2.0 * self.smoothness)


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """Noise deviations σ and zCDP budgets ρ of the served devices, and the objective they reach."""

    noise: Floats
    budget: Floats
    value: float


def zcdp_budget(noise: ArrayLike, samples: ArrayLike, clip: float) -> Floats:
    """ρ_i = 2 (M / (X_i σ_i))² of the Gaussian mechanism on a mean of X_i clipped gradients; σ = 0 costs +inf."""
    deviation, count = _noise_and_samples(noise, samples)
    with np.errstate(divide="ignore"):
        budget: Floats = 2.0 * (clip / (count * deviation)) ** 2
    return budget


def noise_for_budget(budget: ArrayLike, samples: ArrayLike, clip: float) -> Floats:
    """σ_i = √2 M / (X_i √ρ_i), the inverse of `zcdp_budget`; ρ = 0 needs infinite noise, ρ = inf none."""
    rho, count = np.asarray(budget, dtype=float), _samples(samples)
    if np.isnan(rho).any() or (rho < 0).any():
        raise InvalidNoiseProblem(f"a zCDP budget is {rho.min()}; budgets are 0 or more")
    with np.errstate(divide="ignore"):
        deviation: Floats = np.sqrt(2.0) * clip / (count * np.sqrt(rho))
    return deviation


def objective(noise: ArrayLike, samples: ArrayLike, weights: NoiseWeights) -> float:
    """(d²/2L) max σ² + γ Σ ρ of a given noise vector; 0 when no device is served, and 0 · inf counts as 0."""
    deviation, count = _noise_and_samples(noise, samples)
    if not deviation.size:
        return 0.0
    return weights.loss_weight * float(deviation.max()) ** 2 + _privacy_cost(deviation, count, weights)


def unbounded_noise(samples: ArrayLike, weights: NoiseWeights) -> NoisePlan:
    """The closed form without bounds: one σ for all, σ² = (2M/d) √(γ L Σ 1/X_i²).

    The optimal σ_i are equal because lowering one below the largest costs privacy and saves nothing; the rest is
    the minimum of A y + B/y at y = √(B/A), whose value is 2 d M √((γ/L) Σ 1/X_i²).
    """
    count = _samples(samples)
    inverse_squares = float(np.sum((1.0 / count) ** 2))
    variance = 2.0 * weights.clip / weights.dimension
    variance *= np.sqrt(weights.privacy_weight * weights.smoothness * inverse_squares)
    noise = np.full(count.shape, np.sqrt(variance))
    value = 2.0 * weights.dimension * weights.clip
    value *= np.sqrt(weights.privacy_weight / weights.smoothness * inverse_squares)
    return NoisePlan(noise, zcdp_budget(noise, count, weights.clip), float(value))


def bounded_noise(
    samples: ArrayLike, weights: NoiseWeights, *, low: ArrayLike | None = None, high: ArrayLike | None = None
) -> NoisePlan:
    """The exact optimum with low_i ≤ σ_i ≤ high_i: σ_i = min(y, high_i) for the best level y ≥ max low.

    Between two consecutive high_i² the devices still free form one term B/y², so the best y² there is √(B/A)
    clamped to the interval; the best of all intervals wins. O(n log n).

    samples: X_i > 0, shape (n,).  low: default 0.  high: default +inf; +inf is legal.
    """
    count = _samples(samples)
    lower, upper = _bounds(count.size, low, high)
    if not count.size:
        return NoisePlan(np.empty(0), np.empty(0), 0.0)
    if not lower.any() and np.isinf(upper).all():
        return unbounded_noise(count, weights)
    level = _best_level(count, float(lower.max()), upper, weights)
    noise = np.minimum(level, upper)
    return NoisePlan(noise, zcdp_budget(noise, count, weights.clip), objective(noise, count, weights))


def station_multipliers(
    counted: ArrayLike, weights: NoiseWeights, *, most_budget: float | None = None, least_budget: float | None = None
) -> Floats:
    """z = σ X / M of the devices that one station serves, within bounds on a device's ρ; each station solves its own.

    A budget of at most ρ asks for at least that much noise, and the reverse.
    """
    own = _samples(counted)
    low = noise_for_budget(np.full(len(own), most_budget or np.inf), own, weights.clip)
    high = noise_for_budget(np.full(len(own), least_budget or 0.0), own, weights.clip)
    answer: Floats = bounded_noise(own, weights, low=low, high=high).noise * own / weights.clip
    return answer


def _best_level(count: Floats, floor: float, upper: Floats, weights: NoiseWeights) -> float:
    """The y ≥ floor minimising A y² + Σ_{high_i ≥ y} B_i/y² + Σ_{high_i < y} B_i/high_i²."""
    movable = upper > 0  # a device held at no noise costs +inf at every level and must not blur the choice
    if weights.privacy_weight == 0 or not movable.any():
        return floor
    order = np.argsort(upper[movable], kind="stable")
    caps = upper[movable][order]
    privacy = (2.0 * weights.privacy_weight * (weights.clip / count[movable]) ** 2)[order]  # B_i
    free = np.cumsum(privacy[::-1])[::-1]
    held = np.concatenate(([0.0], np.cumsum(privacy / caps**2)[:-1]))
    start = np.maximum(np.concatenate(([0.0], caps[:-1])), floor)
    # The interval that ends below the floor is empty; the last never is, because low ≤ high.
    real = caps >= floor
    level = np.clip((free / weights.loss_weight) ** 0.25, start, np.maximum(caps, floor))[real]
    value = weights.loss_weight * level**2 + free[real] / level**2 + held[real]
    return float(level[int(np.argmin(value))])


def _privacy_cost(noise: Floats, count: Floats, weights: NoiseWeights) -> float:
    if weights.privacy_weight == 0:
        return 0.0
    return weights.privacy_weight * float(np.sum(zcdp_budget(noise, count, weights.clip)))


def _samples(samples: ArrayLike) -> Floats:
    count = np.asarray(samples, dtype=float)
    if count.ndim != 1:
        raise InvalidNoiseProblem(f"samples must be a list of numbers, not an array of shape {count.shape}")
    if not np.isfinite(count).all() or (count <= 0).any():
        raise InvalidNoiseProblem(
            f"every device needs a finite number of samples above 0; got {count.min()}: leave out devices without data"
        )
    return count


def _noise_and_samples(noise: ArrayLike, samples: ArrayLike) -> tuple[Floats, Floats]:
    deviation, count = np.asarray(noise, dtype=float), _samples(samples)
    if deviation.shape != count.shape:
        raise InvalidNoiseProblem(f"{deviation.size} noise values for {count.size} devices; give one each")
    if np.isnan(deviation).any() or (deviation < 0).any():
        raise InvalidNoiseProblem(f"a noise deviation is {deviation.min()}; deviations are 0 or more")
    return deviation, count


def _bounds(n: int, low: ArrayLike | None, high: ArrayLike | None) -> tuple[Floats, Floats]:
    lower = np.zeros(n) if low is None else np.asarray(low, dtype=float)
    upper = np.full(n, np.inf) if high is None else np.asarray(high, dtype=float)
    for name, bound in (("low", lower), ("high", upper)):
        if bound.shape != (n,):
            raise InvalidNoiseProblem(f"{name} has {bound.size} entries for {n} devices; give one each")
        if np.isnan(bound).any() or (bound < 0).any():
            raise InvalidNoiseProblem(f"{name} holds {bound.min()}; noise bounds are 0 or more")
    if np.isinf(lower).any():
        raise InvalidNoiseProblem("low holds an infinite bound; the least noise must be finite")
    crossed = np.flatnonzero(lower > upper)
    if crossed.size:
        i = int(crossed[0])
        raise InvalidNoiseProblem(f"device {i} has low {lower[i]} above high {upper[i]}; give low ≤ high")
    return lower, upper

"""β/μ² of a loss, fitted to rounds whose noise is known.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks, eq. (1) bounds
the loss of round t by (β/μ²)(E²/2 + Σ_i pS²θ_i²/(D_i²ρ_i))/t above the best one. Taken as an equation it is linear in
three unknowns, the best loss L*, the start e = βE²/(2μ²) and the curvature k = β/μ²:

    L_t = L* + e/t + k·x_t/t,   x_t = pS² Σ_i θ_i²/(D_i²ρ_i),   e, k ≥ 0.

Unlike [MPPFL], which takes β and μ as known, k is the least-squares estimate. Bounds are loose, so it is the effect of
noise on this model and these data, not the constant of a proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # loads its submodules on first use

from services.kit.errors import InvalidInput
from services.pricing.domain.influence import Vector

FEWEST = 4
_COLLINEAR = 1e-9


class InvalidMeasurements(InvalidInput):
    """Measured rounds that do not determine the curvature."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A round t, the noise x_t delivered in it, and the loss of the resulting model."""

    round: int
    noise: float
    loss: float


@dataclass(frozen=True, slots=True, eq=False)
class CurvatureFit:
    """k with its standard error, L* and e, and the residual of each round: measured minus fitted.

    `status` is "ok", or "flat" when more noise did not raise the loss: k is then 0 and unusable.
    """

    status: str
    curvature: float
    deviation: float
    best_loss: float
    start: float
    residuals: Vector
    rmse: float


def noise_of(elements: float, clip_norm: float, samples: Sequence[float], budgets: Sequence[float]) -> float:
    """x = pS² Σ_i θ_i²/(D_i²ρ_i) over delivered updates; with θ_i = D_i/ΣD that is pS²/(ΣD)² · Σ 1/ρ_i."""
    return elements * clip_norm**2 / sum(samples) ** 2 * sum(1.0 / budget for budget in budgets)


def fit(measured: Sequence[Measured]) -> CurvatureFit:
    """Return the least-squares curvature; raise when the rounds do not determine it."""
    _check(measured)
    t = np.array([float(item.round) for item in measured])
    x = np.array([item.noise for item in measured])
    losses = np.array([item.loss for item in measured])
    scale = float(x.max())
    design = np.column_stack((np.ones(len(t)), 1.0 / t, x / scale / t))
    if np.linalg.svd(design, compute_uv=False)[-1] < _COLLINEAR:
        raise InvalidMeasurements(
            "noise is the same in all rounds or has too few distinct values, which does not separate it from progress; "
            "add tasks with other noise, such as another accuracy_weight"
        )
    result = scipy.optimize.lsq_linear(design, losses, bounds=([-np.inf, 0.0, 0.0], np.inf))
    residuals = losses - design @ result.x
    freedom = len(t) - design.shape[1]
    spread = float(residuals @ residuals) / freedom * np.linalg.inv(design.T @ design)
    curvature = float(result.x[2]) / scale
    return CurvatureFit(
        status="ok" if result.x[2] > 0 and result.active_mask[2] == 0 else "flat",
        curvature=curvature if result.active_mask[2] == 0 else 0.0,
        deviation=math.sqrt(float(spread[2, 2])) / scale,
        best_loss=float(result.x[0]),
        start=float(result.x[1]),
        residuals=residuals,
        rmse=math.sqrt(float(np.mean(residuals**2))),
    )


def _check(measured: Sequence[Measured]) -> None:
    if len(measured) < FEWEST:
        raise InvalidMeasurements(
            f"three unknowns need at least {FEWEST} measured rounds, got {len(measured)}; measure more rounds"
        )
    for place, item in enumerate(measured):
        if item.round < 1 or not (math.isfinite(item.noise) and item.noise > 0 and math.isfinite(item.loss)):
            raise InvalidMeasurements(
                f"measured[{place}]: rounds count from 1, noise is positive and a loss is finite, got {item}"
            )

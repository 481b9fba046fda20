"""`what-if curvature`: β/μ² of a market's model fitted to measured rounds, and the error of the fit. [MPPFL] eq. (1)

The answer's `curvature` can be used directly in a task's `pricing` parameters.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from services.kit.runtime import whatif
from services.pricing.domain.curvature import Measured, fit, noise_of


class Delivered(whatif.Input):
    """One device's delivery: samples D and the budget ρ it sold."""

    samples: float
    budget: float


class MeasuredRound(whatif.Input):
    """A round from 1, the loss of its model, and what was delivered; or directly its `noise` x = pS²Σθ²/(D²ρ)."""

    round: int
    loss: float
    delivered: list[Delivered] = Field(default_factory=list)
    noise: float | None = None


class Input(whatif.Input):
    """Measured rounds of tasks with the same model and data; p and S of those given by deliveries."""

    measured: list[MeasuredRound]
    elements: float = 1.0
    clip_norm: float = 1.0


def solve(question: Input) -> dict[str, Any]:
    """Return the curvature with its standard error, and the residuals: measured minus fitted, round by round."""
    result = fit([Measured(item.round, _noise(item, question), item.loss) for item in question.measured])
    return {
        "status": result.status,
        "curvature": result.curvature,
        "deviation": result.deviation,
        "best_loss": result.best_loss,
        "start": result.start,
        "rmse": result.rmse,
        "residuals": result.residuals,
    }


def _noise(item: MeasuredRound, question: Input) -> float:
    if item.noise is not None:
        return item.noise
    selling = [part for part in item.delivered if part.budget > 0 and part.samples > 0]
    if not selling:
        return 0.0
    samples, budgets = [part.samples for part in selling], [part.budget for part in selling]
    return noise_of(question.elements, question.clip_norm, samples, budgets)

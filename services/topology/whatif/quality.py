"""`what-if quality`: the quality model's constants refitted to measured runs, and the error of the fit. [SCFL]

`loss_fit`, `quality_offset` and `quality_slope` of the answer go as they are into a task's `topology` parameters.
"""

from __future__ import annotations

from typing import Any

from services.kit.runtime import whatif
from services.topology.domain.quality import Measurement, refit


class MeasuredRun(whatif.Input):
    """One measured run: noise multiplier σ, non-IID degree γ, final loss, and accuracy in percent."""

    noise: float
    non_iid: float
    loss: float
    accuracy: float


class Input(whatif.Input):
    """The measured runs."""

    measured: list[MeasuredRun]


def solve(question: Input) -> dict[str, Any]:
    """The refitted constants, and what they leave unexplained: measured minus fitted, run by run."""
    result = refit([Measurement(run.noise, run.non_iid, run.loss, run.accuracy) for run in question.measured])
    return {
        "loss_fit": result.model.loss_fit,
        "quality_offset": result.model.quality_offset,
        "quality_slope": result.model.quality_slope,
        "loss_rmse": result.loss_rmse,
        "accuracy_rmse": result.accuracy_rmse,
        "loss_residuals": result.loss_residuals,
        "accuracy_residuals": result.accuracy_residuals,
        "measured": [run.model_dump() for run in question.measured],
    }

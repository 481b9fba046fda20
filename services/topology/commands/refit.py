"""Refits the quality model's constants to measured runs: `python -m services.topology refit < measured.json`.

The input is a JSON list of runs; answers and refusals are those of a what-if question. `loss_fit`, `quality_offset` and
`quality_slope` of the answer go as they are into a task's `topology` parameters.
"""

from __future__ import annotations

import json
import sys
from io import StringIO
from typing import Any, TextIO

from services.kit import whatif
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
    }


def run(text: str, stdout: TextIO) -> int:
    """Answers the JSON list `text`; 0, or 2 with `{"error": {"reason", "message"}}` on bad input."""
    try:
        question = json.dumps({"measured": json.loads(text)})
    except ValueError:
        question = text  # refused below, with the place of the mistake in the text as it was given
    return whatif.run({"refit": __name__}, ["refit"], StringIO(question), stdout)


def main() -> int:
    """`run` on this process's own streams."""
    return run(sys.stdin.buffer.read().decode(errors="replace"), sys.stdout)

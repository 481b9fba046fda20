"""`python -m services.topology refit`: constants from measured runs, and refusals like a what-if question's."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import pytest

from services.topology.commands import refit as refitting
from services.topology.domain.quality import QualityModel

TRUTH = QualityModel(loss_fit=(0.02, 0.01, 0.01, 7.0, 0.2), quality_offset=100.0, quality_slope=30.0)
PLACES = [(noise, non_iid) for noise in (0.0, 0.15, 0.3, 0.45, 0.6) for non_iid in (0.1, 1.0, 10.0, 50.0)]


def runs() -> list[dict[str, float]]:
    """Runs that follow `TRUTH` exactly."""
    return [
        {
            "noise": noise,
            "non_iid": non_iid,
            "loss": float(TRUTH.loss(noise, non_iid)),
            "accuracy": float(TRUTH.quality(noise, non_iid)),
        }
        for noise, non_iid in PLACES
    ]


def ask(text: str) -> tuple[int, dict[str, Any]]:
    out = io.StringIO()
    status = refitting.run(text, out)
    return status, json.loads(out.getvalue())


def test_runs_that_follow_the_model_give_its_constants_back() -> None:
    status, answer = ask(json.dumps(runs()))
    assert status == 0
    assert answer["loss_fit"] == pytest.approx(TRUTH.loss_fit, rel=1e-3)
    assert answer["quality_offset"] == pytest.approx(100.0)
    assert answer["quality_slope"] == pytest.approx(30.0)
    assert answer["loss_rmse"] < 1e-6
    assert len(answer["loss_residuals"]) == len(answer["accuracy_residuals"]) == len(PLACES)


def test_a_run_off_the_line_shows_in_its_residual() -> None:
    measured = runs()
    measured[7]["accuracy"] += 5.0
    residuals = ask(json.dumps(measured))[1]["accuracy_residuals"]
    assert max(range(len(residuals)), key=lambda row: residuals[row]) == 7
    assert residuals[7] > 3.0


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ("[{", "not_json", "not JSON"),
        ("{}", "invalid_input", "measured: Input should be a valid list"),
        ("[]", "invalid_quality_model", "at least five runs"),
        (json.dumps(runs()[:4]), "invalid_quality_model", "at least five runs, not 4"),
        (json.dumps([runs()[0]] * 9), "invalid_quality_model", "five different"),
        (json.dumps([{**run, "noise": -1.0} for run in runs()]), "invalid_quality_model", "≥ 0"),
        (json.dumps([{**run, "accuracy": 100 * run["loss"]} for run in runs()]), "invalid_quality_model", "rise"),
        (json.dumps([{**runs()[0], "loss": float("nan")}]), "not_json", "NaN is not JSON"),
        (json.dumps([{**runs()[0], "sigma": 1}]), "invalid_input", "measured.0.sigma"),
        ('[{"noise": 0.1}]', "invalid_input", "measured.0.non_iid: Field required"),
    ],
)
def test_bad_input_is_refused_with_a_reason(text: str, reason: str, words: str) -> None:
    status, answer = ask(text)
    assert status == 2
    assert answer["error"]["reason"] == reason
    assert words in answer["error"]["message"]


def test_the_command_answers_on_standard_output() -> None:
    command = [sys.executable, "-m", "services.topology", "refit"]
    good = subprocess.run(command, input=json.dumps(runs()).encode(), capture_output=True, check=False)
    bad = subprocess.run(command, input=b"\xff", capture_output=True, check=False)
    assert (good.returncode, set(json.loads(good.stdout)) >= {"loss_fit", "loss_rmse"}) == (0, True)
    assert (bad.returncode, json.loads(bad.stdout)["error"]["reason"]) == (2, "not_json")

"""`coterie task refit`: tasks become measured runs, and the fit comes with its error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from coterie.records import Enrolment, Model, Payment, Task, TaskSpecification
from coterie_cli.commands import refit
from coterie_cli.console import Mistake
from coterie_cli.main import app
from services.kit.runtime import whatif
from services.pricing.whatif import SOLVERS as PRICING
from services.topology.domain.quality import QualityModel
from services.topology.whatif import SOLVERS
from tests.answers import made

TRUTH = QualityModel(loss_fit=(0.02, 0.0, 0.01, 7.0, 0.2), quality_offset=100.0, quality_slope=30.0)

SOLD = {1: (0.5, 1.0), 2: (0.4, 0.6), 3: (0.9, 0.2), 4: (0.3, 0.3), 5: (0.1, 0.8)}
"""Budgets that the two devices of a market sold in each round."""


def run_of(noise: float) -> dict[str, float]:
    loss, accuracy = float(TRUTH.loss(noise, 1.5)), float(TRUTH.quality(noise, 1.5))
    return {"noise": noise, "non_iid": 1.5, "loss": loss, "accuracy": accuracy}


class Platform:
    """Tasks named by their noise, whose figures follow `TRUTH`; the solver is the real one."""

    def find_task(self, name: str) -> Task:
        if name == "market":
            priced = made(TaskSpecification, name=name, incentive="stackelberg", training={"clip_norm": 2.0})
            return made(Task, id="tsk_market", specification=priced)
        spec = made(TaskSpecification, name=name, incentive="payoff", parameters={"topology": {"non_iid": 2.0}})
        return made(Task, id=f"tsk_{name}", specification=spec)

    def models(self, task_id: str) -> list[Model]:
        # p = 100, S = 2, 10 and 30 samples: x = 400/1600 · Σ1/ρ, and the loss is 0.3 + 1/t + 0.4x/t.
        return [
            made(Model, version=t, size_bytes=400, agreed={"loss": 0.3 + (1 + 0.1 * sum(1 / b for b in sold)) / t})
            for t, sold in SOLD.items()
        ]

    def enrolments(self, task_id: str) -> list[Enrolment]:
        return [made(Enrolment, device_id="dev_0", samples=10), made(Enrolment, device_id="dev_1", samples=30)]

    def payments(self, task: str) -> list[Payment]:
        return [
            made(Payment, round=number, device_id=f"dev_{k}", budget=budget)
            for number, budgets in SOLD.items()
            for k, budget in enumerate(budgets)
        ]

    def what_if(self, solver: str, question: dict[str, Any]) -> Any:
        solvers = PRICING if solver == "curvature" else SOLVERS
        if "tasks" in question:  # as the gateway knows them
            question = {"measured": [run_of(float(task.removeprefix("tsk_"))) for task in question["tasks"]]}
        return json.loads(whatif.answer(solvers, solver, json.dumps(question)))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    @contextmanager
    def connect(url: str, key: str) -> Iterator[Platform]:
        yield Platform()

    monkeypatch.setattr(refit, "connect", connect)

    def call(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["task", "refit", *arguments], env={"COLUMNS": "120"})

    return call


NOISES = ("0.0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6")


def test_constants_are_recovered_from_measured_tasks(run: Any) -> None:
    result = json.loads(run(*NOISES, "--json").stdout)
    assert [item["noise"] for item in result["measured"]] == pytest.approx([float(noise) for noise in NOISES])
    assert result["loss_rmse"] < 1e-4
    fitted = QualityModel(loss_fit=tuple(result["loss_fit"]), quality_offset=result["quality_offset"])
    assert float(fitted.loss(0.35, 1.5)) == pytest.approx(float(TRUTH.loss(0.35, 1.5)), rel=1e-2)
    assert result["quality_slope"] == pytest.approx(30.0, rel=1e-6)


def test_table_shows_the_error_of_the_fit(run: Any) -> None:
    shown = run(*NOISES).stdout
    assert "error of the fit: loss" in shown
    assert all(noise in shown for noise in NOISES)


def test_too_few_tasks_are_refused_with_advice(run: Any) -> None:
    few = run("0.1", "0.2", "0.3", "0.3", "0.3").exception
    assert isinstance(few, Mistake)
    assert "five constants need 5 tasks with different noise, got 3" in str(few)


def test_market_yields_its_curvature_with_the_error_of_the_fit(run: Any) -> None:
    result = json.loads(run("market", "--json").stdout)
    assert result["curvature"] == pytest.approx(0.4)
    assert result["rmse"] < 1e-9
    assert (result["elements"], result["clip_norm"]) == (100.0, 2.0)
    assert [item["delivered"][1]["samples"] for item in result["measured"]] == [30.0] * 5
    shown = run("market").stdout
    assert "curvature 0.4 ±" in shown
    assert "error of the fit" in shown

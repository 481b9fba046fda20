"""`coterie task refit`: tasks become measured runs, and the fit comes with its error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from coterie.records import Enrolment, Model, Plan, Seat, Task, TaskSpecification
from coterie_cli.commands import refit
from coterie_cli.console import Mistake
from coterie_cli.main import app
from services.kit import whatif
from services.topology.domain.quality import QualityModel
from services.topology.whatif import SOLVERS
from tests.answers import made

TRUTH = QualityModel(loss_fit=(0.02, 0.0, 0.01, 7.0, 0.2), quality_offset=100.0, quality_slope=30.0)


class Platform:
    """Tasks named by their noise, whose figures follow `TRUTH`; the solver is the real one."""

    def find_task(self, name: str) -> Task:
        spec = made(TaskSpecification, name=name, parameters={"topology": {"non_iid": 2.0}})
        return made(Task, id=f"tsk_{name}", specification=spec)

    def models(self, task_id: str) -> list[Model]:
        noise = float(task_id.removeprefix("tsk_"))
        loss, accuracy = float(TRUTH.loss(noise, 1.5)), float(TRUTH.quality(noise, 1.5)) / 100
        lie = {"loss": 0.0, "accuracy": 1.0}
        if noise > 5:
            return [made(Model, version=1, metrics={"loss": loss})]
        return [
            made(Model, version=0, metrics=lie),
            made(Model, version=2, metrics=lie, evaluated={"loss": loss, "accuracy": accuracy}),
            made(Model, version=1, metrics=lie),
            made(Model, version=3),
        ]

    def plan(self, task_id: str) -> Plan:
        noise = float(task_id.removeprefix("tsk_"))
        told = [("member", 0.5 * noise), ("solo", 1.5 * noise), ("idle", 9.0)]
        return made(Plan, seats=tuple(made(Seat, role=role, noise_multiplier=value) for role, value in told))

    def enrolments(self, task_id: str) -> list[Enrolment]:
        return [made(Enrolment, non_iid=1.0), made(Enrolment, non_iid=0.0), made(Enrolment, non_iid=50.0)]

    def what_if(self, solver: str, question: dict[str, Any]) -> Any:
        return json.loads(whatif.answer(SOLVERS, solver, json.dumps(question)))


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


def test_the_constants_come_back_from_what_the_publisher_measured(run: Any) -> None:
    """Mean noise of those who work; γ up to the task's own, which is also that of devices that declare none."""
    found = json.loads(run(*NOISES, "--json").stdout)
    assert [each["noise"] for each in found["measured"]] == pytest.approx([float(noise) for noise in NOISES])
    assert [each["non_iid"] for each in found["measured"]] == pytest.approx([5 / 3] * len(NOISES))
    assert found["loss_rmse"] < 1e-4
    fitted = QualityModel(loss_fit=tuple(found["loss_fit"]), quality_offset=found["quality_offset"])
    assert float(fitted.loss(0.35, 1.5)) == pytest.approx(float(TRUTH.loss(0.35, 1.5)), rel=1e-2)
    assert found["quality_slope"] == pytest.approx(30.0, rel=1e-6)


def test_the_table_shows_the_error_of_the_fit(run: Any) -> None:
    shown = run(*NOISES).stdout
    assert "error of the fit: loss" in shown
    assert all(noise in shown for noise in NOISES)


def test_too_few_tasks_and_tasks_without_figures_are_refused_with_what_to_do(run: Any) -> None:
    few = run("0.1", "0.2", "0.3", "0.3", "0.3").exception
    assert isinstance(few, Mistake)
    assert "five constants need 5 tasks with different noise, 3 came" in str(few)
    blind = run(*NOISES, "6.0").exception
    assert isinstance(blind, Mistake)
    assert "coterie task evaluate" in str(blind)

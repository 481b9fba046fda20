"""`coterie conformance`: the Python agent passes all of it, and devices with a fault are told which step and why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from coterie.records import Task, TaskSpecification, WorkItem
from coterie_cli.conformance.lessons import Lie
from coterie_cli.conformance.programme import PARTS, programme
from coterie_cli.conformance.scene import Scene
from tests.e2e.real_platform import ROOT

DEVICE = [sys.executable, "-m", "tests.e2e.conformance_device"]
CARELESS = [sys.executable, "-m", "tests.e2e.careless_device"]


def conformance(*arguments: str, variables: dict[str, str] | None = None) -> tuple[int, dict[str, Any], str]:
    """Exit code, report and what was written to stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "coterie_cli.main", "conformance", "--json", *arguments],
        cwd=ROOT, env={**os.environ, **(variables or {})}, capture_output=True, text=True, timeout=540, check=False,
    )  # fmt: skip
    assert done.stdout.strip(), done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def failed(report: dict[str, Any]) -> dict[str, str]:
    return {step["step"]: step["said"] for step in report["steps"] if step["outcome"] == "failed"}


def test_the_python_agent_passes_every_step_and_declines_nothing_it_may_do() -> None:
    code, report, said = conformance("--patience", "120", "--", *DEVICE)
    assert (code, failed(report)) == (0, {}), said
    assert {step["outcome"] for step in report["steps"]} == {"passed"}, report
    assert len(report["steps"]) == sum(len(part.lessons) for part in programme())


FAULTS = {
    "believes-digests": ("forged model", "an update was handed in"),
    "reads-everything": ("endless model", "MiB of a model"),
    "follows-redirects": ("redirected", "the redirect was followed with the API key"),
    "draws-again": ("work given twice", "another update came for the same work"),
    "hurries": ("busy", "Retry-After said"),
    "downgrades": ("secure sum", "an update was handed in"),
}


def test_a_device_with_faults_is_told_the_steps_and_what_was_expected() -> None:
    code, report, said = conformance("--part", "open", "--", *CARELESS, variables={"FAULTS": " ".join(FAULTS)})
    assert code == 1
    result = failed(report)
    for step, why in FAULTS.values():
        assert why in result.get(step, "it passed"), (result, said)
    assert all(step["expects"] for step in report["steps"])
    assert "still there" not in result  # after all that, honest work is honest


def test_device_that_hands_in_model_is_told_that_update_is_change() -> None:
    _, report, said = conformance("--part", "open", "--", *CARELESS, variables={"FAULTS": "sends-the-model"})
    assert "the trained model was handed in; an update is the change" in failed(report)["update"], said


def test_a_device_without_faults_passes_the_part_without_noise() -> None:
    """The careless device itself is sound, so that each of its faults is what fails."""
    code, report, said = conformance("--part", "open", "--patience", "60", "--", *CARELESS, variables={"FAULTS": ""})
    assert (code, failed(report)) == (0, {}), said


def test_a_device_that_registers_with_a_false_proof_gets_no_further() -> None:
    code, report, _ = conformance(
        "--part", "open", "--patience", "10", "--", *CARELESS, variables={"FAULTS": "no-proof"}
    )
    assert code == 1
    assert "proof must be the Ed25519 signature" in failed(report)["register"]
    assert {step["outcome"] for step in report["steps"][1:]} == {"left out"}


def test_a_part_that_does_not_exist_is_one_line_and_exit_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "coterie_cli.main", "conformance", "--part", "mars"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "there is no part 'mars'; choose from open, noise, clusters" in done.stderr


def test_the_played_platform_s_answers_are_those_of_the_real_one() -> None:
    """Every field that a platform always sends is there, with values that the SDK reads, and none it does not know."""
    scene = Scene()
    work, task = scene.work("open", 1), scene.task("open", "none", "star", 3)
    WorkItem.from_json(work)
    Task.from_json(task)
    assert work.keys() - set(WorkItem.__dataclass_fields__) == {"of_a_later_version"}
    assert not task.keys() - set(Task.__dataclass_fields__)
    assert not task["specification"].keys() - set(TaskSpecification.__dataclass_fields__)


def test_every_step_has_a_name_of_its_own_and_says_what_it_expects() -> None:
    parts = programme()
    assert [part.name for part in parts] == list(PARTS)
    for part in parts:
        names = [lesson.name for lesson in part.lessons]
        assert len(set(names)) == len(names)
        assert all(lesson.expects for lesson in part.lessons)
    assert sum(isinstance(lesson, Lie) for part in parts for lesson in part.lessons) >= 10


def test_the_protocol_page_names_the_command() -> None:
    assert "coterie conformance" in (ROOT / "docs" / "reference" / "protocol.md").read_text()

"""`coterie conformance`: the Python agent passes every case, and a faulty device fails the case of its fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from coterie.records import Task, TaskSpecification, WorkItem
from coterie_cli.conformance.cases import InvalidWork
from coterie_cli.conformance.fixtures import Fixtures
from coterie_cli.conformance.suite import GROUPS, build_suite
from tests.e2e.real_platform import ROOT

DEVICE = [sys.executable, "-m", "tests.e2e.conformance_device"]
CARELESS = [sys.executable, "-m", "tests.e2e.careless_device"]


def conformance(*arguments: str, variables: dict[str, str] | None = None) -> tuple[int, dict[str, Any], str]:
    """Run the command; return exit code, report and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "coterie_cli.main", "conformance", "--json", *arguments],
        cwd=ROOT, env={**os.environ, **(variables or {})}, capture_output=True, text=True, timeout=540, check=False,
    )  # fmt: skip
    assert done.stdout.strip(), done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def failed(report: dict[str, Any]) -> dict[str, str]:
    return {case["case"]: case["detail"] for case in report["cases"] if case["outcome"] == "failed"}


def test_python_agent_passes_every_case_and_declines_no_optional_work() -> None:
    code, report, stderr = conformance("--patience", "120", "--", *DEVICE)
    assert (code, failed(report)) == (0, {}), stderr
    assert {case["outcome"] for case in report["cases"]} == {"passed"}, report
    assert len(report["cases"]) == sum(len(group.cases) for group in build_suite())


FAULTS = {
    "believes-digests": ("forged model", "the device sent an update"),
    "reads-everything": ("endless model", "MiB of a model"),
    "follows-redirects": ("redirected", "the device followed the redirect with the API key"),
    "draws-again": ("work given twice", "sent a different update for the same work"),
    "hurries": ("busy", "although Retry-After was"),
    "downgrades": ("secure sum", "the device sent an update"),
}


def test_each_fault_fails_its_case_with_the_expectation() -> None:
    code, report, stderr = conformance("--group", "open", "--", *CARELESS, variables={"FAULTS": " ".join(FAULTS)})
    assert code == 1
    result = failed(report)
    for case, why in FAULTS.values():
        assert why in result.get(case, "it passed"), (result, stderr)
    assert all(case["expects"] for case in report["cases"])
    assert "still there" not in result


def test_trained_model_in_place_of_a_change_is_refused() -> None:
    _, report, stderr = conformance("--group", "open", "--", *CARELESS, variables={"FAULTS": "sends-the-model"})
    assert "the update is the trained model; send the change" in failed(report)["update"], stderr


def test_device_without_faults_passes_the_group_without_noise() -> None:
    """Without FAULTS the careless device passes, so each failure above comes from its fault."""
    code, report, stderr = conformance("--group", "open", "--patience", "60", "--", *CARELESS, variables={"FAULTS": ""})
    assert (code, failed(report)) == (0, {}), stderr


def test_registration_with_a_false_proof_skips_all_other_cases() -> None:
    code, report, _ = conformance(
        "--group", "open", "--patience", "10", "--", *CARELESS, variables={"FAULTS": "no-proof"}
    )
    assert code == 1
    assert "proof must be the Ed25519 signature" in failed(report)["register"]
    assert {case["outcome"] for case in report["cases"][1:]} == {"skipped"}


def test_unknown_group_is_one_line_and_exit_code_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "coterie_cli.main", "conformance", "--group", "mars"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "unknown group 'mars'; choose from open, noise, clusters" in done.stderr


def test_simulated_platform_sends_the_fields_of_the_real_one() -> None:
    """The SDK reads every field, and only `of_a_later_version` is unknown to it."""
    fixtures = Fixtures()
    work, task = fixtures.work("open", 1), fixtures.task("open", "none", "star", 3)
    WorkItem.from_json(work)
    Task.from_json(task)
    assert work.keys() - set(WorkItem.__dataclass_fields__) == {"of_a_later_version"}
    assert not task.keys() - set(Task.__dataclass_fields__)
    assert not task["specification"].keys() - set(TaskSpecification.__dataclass_fields__)


def test_every_case_has_a_unique_name_and_an_expectation() -> None:
    groups = build_suite()
    assert [group.name for group in groups] == list(GROUPS)
    for group in groups:
        names = [case.name for case in group.cases]
        assert len(set(names)) == len(names)
        assert all(case.expects for case in group.cases)
    assert sum(isinstance(case, InvalidWork) for group in groups for case in group.cases) >= 10


def test_the_protocol_page_names_the_command() -> None:
    assert "coterie conformance" in (ROOT / "docs" / "reference" / "protocol.md").read_text()

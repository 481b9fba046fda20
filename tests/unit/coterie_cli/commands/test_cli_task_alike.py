"""`coterie task alike` and `coterie device care`: what a survey's correlation and an owner's care come from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coterie.agent.home import DeviceHome, DeviceIdentity
from coterie.parameters.pricing import CorrelatedParameters
from coterie_cli.commands import alike
from coterie_cli.main import app
from services.kit.runtime import whatif
from services.pricing.whatif import SOLVERS


class Platform:
    """The real solver."""

    def what_if(self, solver: str, question: dict[str, Any]) -> Any:
        return json.loads(whatif.answer(SOLVERS, solver, json.dumps(question)))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    @contextmanager
    def connect(url: str, key: str) -> Iterator[Platform]:
        yield Platform()

    monkeypatch.setattr(alike, "connect", connect)

    def call(text: str, *arguments: str) -> Any:
        file = tmp_path / "records.csv"
        file.write_text(text)
        return CliRunner().invoke(app, ["task", "alike", str(file), *arguments], env={"COLUMNS": "120"})

    return call


RECORDS = "dev_a,dev_b,dev_c\n0,1,9\n3,1,0\n4,4,5\n1,3,5\n2,1,1\n"
RANGE = ("--low", "0", "--high", "10")


def test_public_records_become_a_surveys_parameters(run: Any) -> None:
    result = run(RECORDS, *RANGE, "--group", "dev_a, dev_b", "--json")
    assert result.exit_code == 0, result.output
    estimates = json.loads(result.stdout)
    parameters = CorrelatedParameters.read({"alike": estimates["alike"]})
    (group,) = parameters.alike
    assert group.devices == ("dev_a", "dev_b")
    assert group.correlation == pytest.approx(50.0)
    shown = run(RECORDS, *RANGE).stdout
    assert "from 5 records" in shown
    assert "dev_a, dev_b, dev_c" in shown
    assert "95 % interval" in shown


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no records"),
        ("dev_a,dev_b\n", "has no records"),
        ("dev_a,dev_a\n1,2\n", "names a device twice"),
        ("dev_a,dev_b\n1,2\n3\n", "record 3: 1 values for 2 devices"),
        ("dev_a,dev_b\n1,warm\n", "every value must be a number"),
    ],
)
def test_a_file_that_holds_no_records_is_refused_with_the_place(run: Any, text: str, why: str) -> None:
    result = run(text, *RANGE)
    assert (result.exit_code, "Traceback" in result.output) == (1, False)
    assert why in str(result.exception)


def test_owner_sets_the_value_of_privacy_and_changes_nothing_else(tmp_path: Path) -> None:
    home = DeviceHome(tmp_path / "phone")
    home.save_identity(DeviceIdentity("dev_1", "phone", "own_1", "http://here", "ck_1.x"))
    home.save_private_settings({"answer": 21.5})

    def care(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["device", "care", "--home", str(home.folder), *arguments])

    assert "surveys assume defaults" in care().stdout
    assert json.loads(care("--own", "2", "--json").stdout) == {"own": 2.0}
    assert json.loads(care("--hidden", "5", "--json").stdout) == {"own": 2.0, "hidden": 5.0}
    assert home.private_settings() == {"answer": 21.5, "care": {"own": 2.0, "hidden": 5.0}}
    wrong = care("--social", "-0.5")
    assert "at least 0" in str(wrong.exception)
    assert home.private_settings()["care"] == {"own": 2.0, "hidden": 5.0}

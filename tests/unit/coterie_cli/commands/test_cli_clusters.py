"""What the command says about clusters: a plan's assignments, and a device's own limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie.agent.home import DeviceHome, DeviceIdentity
from coterie.records import Assignment, Plan, Task
from coterie_cli.commands import task as task_commands
from coterie_cli.main import app
from tests.answers import made

PLAN = made(
    Plan,
    version=3,
    topology="clusters",
    assignments=[
        made(Assignment, device_id="dev_s", role="solo", group=-1, noise_multiplier=0.6, weight=62.25, payoff=32.37),
        made(Assignment, device_id="dev_m", role="member", noise_multiplier=0.18, weight=96.0, payoff=48.9),
        made(Assignment, device_id="dev_z", role="head", weight=96.83, payoff=49.2),
    ],
    details={"stable": True, "blocking": None, "mean_payoff": 43.49, "mean_solo_payoff": 32.37},
)


class Platform:
    def find_task(self, name: str) -> Task:
        return made(Task, id=f"tsk_{name}")

    def plan(self, task_id: str, version: int) -> Plan:
        return PLAN


def test_plan_shows_heads_first_with_noise_payoff_and_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def connect(url: str, key: str) -> Iterator[Platform]:
        yield Platform()

    monkeypatch.setattr(task_commands, "connect", connect)
    result = CliRunner().invoke(app, ["task", "plan", "digits"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "stable: no device gains by moving; mean payoff 43.49, alone 32.37" in result.output
    lines = [line.split() for line in result.output.splitlines() if "dev_" in line]
    assert [line[:6] for line in lines] == [
        ["0", "dev_z", "head", "0.000", "96.83", "49.20"],
        ["0", "dev_m", "member", "0.180", "96.00", "48.90"],
        ["–", "dev_s", "solo", "0.600", "62.25", "32.37"],
    ]


def test_owner_sets_the_limit_of_a_device(tmp_path: Path) -> None:
    home = DeviceHome(tmp_path / "phone")
    home.save_identity(DeviceIdentity("dev_1", "phone", "own_1", "http://here", "ck_1.x"))
    arguments = ["privacy", "limit", "--home", str(home.folder), "--epsilon", "20", "--allow-raw"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    limit = home.ledger().limit
    assert (limit.epsilon, limit.delta, limit.unit, limit.allow_raw) == (20.0, 1e-5, "device", True)


@pytest.mark.parametrize("odd", [["--unit", "city"], ["--delta", "2"]])
def test_invalid_limit_is_refused(tmp_path: Path, odd: list[str]) -> None:
    home = DeviceHome(tmp_path / "phone")
    home.save_identity(DeviceIdentity("dev_1", "phone", "own_1", "http://here", "ck_1.x"))
    before = home.ledger().limit
    result = CliRunner().invoke(app, ["privacy", "limit", "--home", str(home.folder), "--epsilon", "20", *odd])
    assert result.exit_code != 0
    assert home.ledger().limit == before

"""Attacks on a device's time and disk: work that would never end, and names that lead out of its folder."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coterie.agent.home import DeviceHome
from coterie.agent.workload import UnsoundId, Workload, sound_id
from coterie.errors import BadHome, Declined
from coterie.learning.training import model_bytes
from coterie_cli.main import app
from tests.e2e.stand_in import StandIn
from tests.unit.coterie.agent.test_agent_rounds import agent_at, module, run

ENDLESS: list[dict[str, Any]] = [
    {"epochs": 10**9},
    {"epochs": -1},
    {"epochs": 1.5},
    {"epochs": "many"},
    {"epochs": True},
    {"batch_size": 0},
    {"batch_size": 10**9},
    {"batch_size": None},
    {"steps": 10**9},
]


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn(model_bytes(module()), rounds=2, training={"epochs": 2, "batch_size": 8}) as server:
        yield server


@pytest.mark.parametrize("training", ENDLESS, ids=str)
def test_endless_work_is_declined_with_a_reason_and_device_lives_on(
    stand_in: StandIn, tmp_path: Path, training: dict[str, Any]
) -> None:
    agent = agent_at(stand_in, tmp_path)
    agent.join("tiny")
    stand_in.training = training
    summary_of_one: list[str] = []

    def after(result: Any) -> None:
        summary_of_one.append(f"{result.outcome}: {result.note}")
        stand_in.training = {"epochs": 1}  # an honest task again

    agent._on_round = after
    summary = agent.run()
    name = next(iter(training))
    assert summary_of_one[0].startswith(f"declined: the task asks for {name}")
    assert stand_in.declined
    assert summary.tasks == {"tsk_1": "finished"}
    assert "accepted" in {result.outcome for result in summary.rounds}


def test_an_owner_lowers_and_raises_what_the_device_does(stand_in: StandIn, tmp_path: Path) -> None:
    agent_at(stand_in, tmp_path).close()
    runner = CliRunner()
    shown = runner.invoke(app, ["device", "limits", "--home", str(tmp_path), "--set", "epochs=1", "--json"])
    assert json.loads(shown.stdout)["epochs"] == 1
    assert Workload.of(DeviceHome(tmp_path).private_settings()).epochs == 1
    declined: list[str] = []

    def after(result: Any) -> None:
        declined.append(result.outcome)
        runner.invoke(app, ["device", "limits", "--home", str(tmp_path), "--set", "epochs=500"])

    summary = run(stand_in, tmp_path, on_round=after)
    assert declined[0] == "declined"
    assert summary.rounds[-1].outcome == "accepted"
    for wrong in ("epochs=0", "epochs=-1", "naps=3", "epochs"):
        assert runner.invoke(app, ["device", "limits", "--home", str(tmp_path), "--set", wrong]).exit_code != 0
    with pytest.raises(BadHome, match="limits in private"):
        Workload.of({"limits": {"epochs": "all"}})


@pytest.mark.parametrize("name", ["../../etc", "..", ".", "a/b", "", "a\\b/..", "x" * 200, ".ssh", "a..b"])
def test_an_id_that_leads_out_of_the_device_s_folder_is_refused(name: str) -> None:
    with pytest.raises(UnsoundId, match="do not use this platform"):
        sound_id(name)
    assert sound_id("tsk_01jd0e") == "tsk_01jd0e"


def test_too_many_peers_models_or_bytes_are_declined(stand_in: StandIn, tmp_path: Path) -> None:
    agent = agent_at(stand_in, tmp_path)
    agent.join("tiny")
    (item,) = agent.platform.work(tasks=["tsk_1"], wait_seconds=5).items
    agent.close()
    Workload().check(item)
    from dataclasses import replace

    for change in ({"model_digests": ("0" * 64,) * 65}, {"max_update_bytes": 10**13}, {"batch_size": 10**8}):
        with pytest.raises(Declined, match="this device does"):
            Workload().check(replace(item, **change))

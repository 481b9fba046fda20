"""A mesh over real processes: sealed letters, models that stay on devices, and a device that dies on the way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from coterie.agent.home import DeviceHome, introduce
from coterie.learning.training import model_bytes
from coterie.strategies.device_state import DeviceState, Outgoing
from coterie_cli.main import app
from coterie_cli.processes import die_with_parent
from tests.e2e.mesh_device import make_model
from tests.e2e.real_platform import ROOT, RealPlatform

NAMES = ("mesh-a", "mesh-b", "mesh-c", "mesh-d")
ROUNDS, KILLED_AFTER = 6, 2


@pytest.fixture
def device_group(shared_platform: RealPlatform) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Device processes, ended with the test."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    yield running
    for process in running.values():
        process.kill()
        process.wait()


def start(platform: RealPlatform, home: DeviceHome, task: str, number: int) -> subprocess.Popen[bytes]:
    with (platform.folder / f"device-{home.folder.name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.mesh_device", str(home.folder), task, str(number)],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )


def files_holding(folder: Path, content: bytes) -> list[Path]:
    result = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # letters are forgotten as rounds go on
            if path.is_file() and content in path.read_bytes():
                result.append(path)
    return result


@pytest.mark.slow
def test_mesh_learns_through_sealed_letters_and_survives_a_lost_device(
    shared_platform: RealPlatform, device_group: dict[str, subprocess.Popen[bytes]]
) -> None:
    admin, homes = shared_platform.admin, shared_platform.register(*NAMES)
    introduce(*homes.values())
    task = admin.create_task(
        name="mesh",
        preset="mesh",
        model_digests=[admin.upload_model(model_bytes(make_model()))],
        rounds=ROUNDS,
        min_devices=3,
        quorum=0.7,
        round_seconds=8.0,
        training={"learning_rate": 0.5},
        parameters={"topology": {"wait_share": 0.4}},
        auto_start=False,
    ).id
    for number, (name, home) in enumerate(homes.items()):
        device_group[name] = start(shared_platform, home, task, number)
    shared_platform.wait_until(lambda: admin.task(task).enrolled == len(NAMES), 90.0)
    admin.start_task(task)
    letters = set[Path]()

    def killing_time() -> bool:
        letters.update(files_holding(shared_platform.folder / "platform", b"COTLET1\n"))
        return admin.task(task).round > KILLED_AFTER

    shared_platform.wait_until(killing_time, 120.0)
    device_group["mesh-d"].kill()
    ended = admin.wait_for_end(task)
    assert ended.state == "finished", f"{ended.reason}\n{shared_platform.logs()}"

    rounds = list(admin.rounds(task))
    assert [r.state for r in rounds] == ["done"] * ROUNDS
    assert rounds[0].metrics["heard"] == 1.0
    assert rounds[-1].metrics["accuracy"] > rounds[0].metrics["accuracy"]
    assert {r.model_digests[0] for r in rounds} == {ended.model_digests[0]}

    ids = {name: identity.id for name, home in homes.items() if (identity := home.identity()) is not None}
    seated = {assignment.device_id for assignment in admin.plan(task).assignments}
    assert seated == {ids[name] for name in NAMES[:3]}
    assert rounds[-1].participants == 3
    options = ["--url", shared_platform.processes.url, "--key", shared_platform.processes.admin_key()]
    shown = CliRunner().invoke(app, ["task", "plan", task, *options], env={"COLUMNS": "160"}).stdout
    assert "links, in the order they were added" in shown
    assert [word for word in ("mesh-a", "mesh-b", "mesh-c", "CAS", "this plan", "social") if word not in shown] == []

    for name in NAMES[:3]:
        assert device_group[name].wait(60) == 0
        sent, state = Outgoing.load(homes[name].memory(task)), DeviceState.load(homes[name].memory(task))
        assert sent is not None
        assert state is not None
        assert state.steps == ROUNDS
        assert np.abs(sent.parameters).max() > 0
        assert files_holding(shared_platform.folder / "platform", sent.parameters[:8].tobytes()) == []
        assert homes[name].ledger().spent().raw_releases == ROUNDS - 1
    assert letters
    assert files_holding(shared_platform.folder / "platform", b"COTLET1\n") == []

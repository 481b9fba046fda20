"""Several models at once over real processes: cells serve devices, devices find their model, schedules can be read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from coterie.agent.agent import Agent
from coterie.agent.results import RoundResult
from coterie.client import Platform
from coterie.errors import InvalidRequest, NotAllowed
from coterie.learning.torch_learner import TorchLearner
from coterie.learning.training import model_bytes, seeded
from coterie.privacy.ledger import Limit
from coterie_cli.demos import DemoOptions, demos
from coterie_cli.main import app
from tests.e2e.real_platform import RealPlatform

CELL = {
    "x_metres": 0.0,
    "y_metres": 0.0,
    "blocks": 4,
    "power_watts": 0.01,
    "bandwidth_hertz": 150e3,
    "delay_limit_seconds": 0.4,
    "radius_metres": 300.0,
}
ROUNDS = 4
GUIDE = Path(__file__).parents[2] / "docs/howto/presets/multitask.md"


@pytest.fixture(autouse=True)
def _cells_gone(shared_platform: RealPlatform) -> Iterator[None]:
    """Cells serve every task, so each test takes its own away."""
    yield
    for cell in shared_platform.admin.cells():
        shared_platform.admin.remove_cell(cell.id)


def data(kind: int, seed: int, count: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of the plane; one kind calls the right half 1, the other calls it 0."""
    with seeded(seed):
        points = torch.randn(count, 2)
    return points, ((points[:, 0] > 0) ^ (kind == 1)).long()


def agents(platform: RealPlatform, folder: Path) -> list[Agent]:
    """Four devices near the cell, two of each kind, and one far away."""
    owner = platform.admin.create_owner("multitask").id
    token = platform.admin.issue_token(owner, uses=5).token
    return [
        Agent.register(
            platform.processes.url,
            token,
            name=f"cell-device-{index}",
            home=folder / str(index),
            profile={"location": {"x_metres": 5000.0 if index == 4 else 40.0 * index, "y_metres": 10.0}},
            model=torch.nn.Linear(2, 2),
            data=data(index % 2, index),
            test_data=data(index % 2, 100 + index),
            public_test_data=True,
            limit=Limit(1e3, 1e-5),
            cache=platform.cache,
            poll_seconds=1.0,
        )
        for index in range(5)
    ]


def initial(seed: int) -> bytes:
    with seeded(seed):
        return model_bytes(torch.nn.Linear(2, 2))


def create(platform: RealPlatform, **changes: Any) -> str:
    specification: dict[str, Any] = {
        "name": "halves",
        "preset": "multitask",
        "model_digests": [platform.admin.upload_model(initial(seed)) for seed in (4, 11)],
        "rounds": ROUNDS,
        "min_devices": 5,
        "round_seconds": 60.0,
        "training": {"epochs": 3, "learning_rate": 1.0},
        "parameters": {"privacy": {"dimension": 100.0}},
        "privacy_unit": "example",
        "auto_start": True,
    }
    return platform.admin.create_task(**(specification | changes)).id


def run_all(team: list[Agent], task: str) -> None:
    threads = [threading.Thread(target=_run, args=(agent, task), daemon=True) for agent in team]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120.0)
        assert not thread.is_alive()


def _run(agent: Agent, task: str) -> None:
    agent.join(task)
    agent.run()


def test_two_kinds_of_devices_train_two_models_through_a_cell(shared_platform: RealPlatform, tmp_path: Path) -> None:
    admin = shared_platform.admin
    admin.put_cell("roof", **(CELL | {"delay_limit_seconds": 60.0}))
    team = agents(shared_platform, tmp_path)
    # The channel carries one bit at once: whatever an upload takes beyond that, devices measured.
    measured = {"times": "measured", "payload_bits": 1.0}
    task = create(shared_platform, parameters={"privacy": {"dimension": 100.0}, "topology": measured})
    run_all(team, task)
    ended = admin.wait_for_end(task)
    assert ended.state == "finished", ended.reason
    assert len(ended.model_digests) == 2

    last = admin.round(task, ROUNDS)
    chosen = {part.device_id: part for part in last.participations}
    ids = [agent.identity.id for agent in team]
    assert [chosen[device].state for device in ids] == ["delivered"] * 4 + ["idle"]
    lines = [chosen[device].model_index for device in ids[:4]]
    assert lines[0] == lines[2] != lines[1] == lines[3]
    assert last.round.metrics["accuracy[0]"] > 0.8
    assert last.round.metrics["accuracy[1]"] > 0.8

    plan = admin.plan(task)
    assignments = {assignment.device_id: assignment for assignment in plan.assignments}
    assert "out of range" in assignments[ids[4]].because
    assert all(1e-4 < assignments[device].upload_seconds < 60.0 for device in ids[:4])
    assert all(assignment.upload_seconds < 1e-4 for assignment in admin.plan(task, 1).assignments)
    spent = team[0].home.ledger().history(task)
    assert spent[-1].charge.rho == pytest.approx(2.0 / assignments[ids[0]].noise_multiplier ** 2)
    assert admin.policies() == ()

    options = ["--url", shared_platform.processes.url, "--key", shared_platform.processes.admin_key(), "--json"]
    shown = CliRunner().invoke(app, ["task", "schedule", task, "--device", ids[0], *options])
    assert [entry["round"] for entry in json.loads(shown.stdout)] == [1, 2, 3, 4]
    assert json.loads(shown.stdout)[-1]["model"] == lines[0]
    with Platform(shared_platform.processes.url, team[0].identity.api_key) as device:
        own = list(device.participations(task, ids[0]))
        assert [(part.round, part.state) for part in own] == [(n, "delivered") for n in (1, 2, 3, 4)]
        with pytest.raises(NotAllowed, match="may not act for"):
            list(device.participations(task, ids[1]))
    cells = CliRunner().invoke(app, ["cells", "list", *options])
    assert [cell["id"] for cell in json.loads(cells.stdout)] == ["roof"]


def test_drifting_device_switches_model_and_settled_one_gets_fewer_bytes(
    shared_platform: RealPlatform, tmp_path: Path
) -> None:
    """Samples of the other kind come after round 4 and are seen in round 6 at the latest: the loss rises, and in the
    round after that the device looks at both models."""
    admin = shared_platform.admin
    admin.put_cell("drift", **CELL)
    token = admin.issue_token(admin.create_owner("drift").id, uses=3).token
    drifting = list(zip(*data(0, 2, 20), strict=True))

    def drift(result: RoundResult) -> None:
        if result.round == 4:
            drifting.extend(zip(*data(1, 3, 600), strict=True))

    team = [
        Agent.register(
            shared_platform.processes.url,
            token,
            name=f"drift-{index}",
            home=tmp_path / str(index),
            learner=TorchLearner(torch.nn.Linear(2, 2), held),
            on_round=drift if index == 2 else None,
            profile={"location": {"x_metres": 40.0 * index, "y_metres": 10.0}},
            limit=Limit(1e3, 1e-5, allow_raw=True),
            cache=shared_platform.cache,
            poll_seconds=1.0,
        )
        for index, held in enumerate((data(0, 0, 600), data(1, 1, 600), drifting))
    ]
    by_loss = {"topology": {"identity_weight": 0.2}}  # what the device itself moved last counts for its old model
    # One short step a round: an update that stands out by its length would be refused.
    training = {"epochs": 1, "learning_rate": 0.05, "batch_size": 1000}
    fields: dict[str, Any] = {"privacy": "none", "rounds": 9, "min_devices": 3, "quorum": 1.0, "training": training}
    task = create(shared_platform, name="drift", parameters=by_loss, **fields)
    run_all(team, task)
    ended = admin.wait_for_end(task)
    assert ended.state == "finished", ended.reason
    assert team[2].samples == 620
    first, second, moving = (list(admin.participations(task, a.identity.id)) for a in team)
    assert {p.model_index for p in first} == {1}
    assert {p.model_index for p in second} == {0}
    chosen = [p.model_index for p in moving]
    changed = chosen.index(0)
    assert 5 <= changed <= 7
    assert chosen == [1] * changed + [0] * (9 - changed)
    compared = [p.metrics["compared"] for p in moving]
    assert compared[: changed + 1] == [2.0] * 3 + [1.0] * (changed - 3) + [2.0]
    one = 4.0 * (2 * 2 + 2)  # weights and biases in single precision
    assert [p.metrics["broadcast_bytes"] for p in second[:4]] == [2 * one] * 3 + [one]


def test_one_model_alone_is_refused(shared_platform: RealPlatform) -> None:
    with pytest.raises(InvalidRequest, match="at least 2 initial models"):
        create(shared_platform, name="one", model_digests=[shared_platform.admin.upload_model(initial(1))])


def test_the_guides_example_runs_as_printed_and_tells_both_kinds_apart(shared_platform: RealPlatform) -> None:
    [program] = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    program += "\nprint([identities[agent.identity.id] for agent in agents])\n"
    environment = {
        "COTERIE_URL": shared_platform.processes.url,
        "COTERIE_API_KEY": shared_platform.processes.admin_key(),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("finished ")
    chosen = json.loads(done.stdout.splitlines()[-1])
    assert chosen[0] == chosen[2] != chosen[1] == chosen[3]


@pytest.mark.slow
def test_the_demo_tells_two_kinds_of_devices_apart() -> None:
    """First choices are drawn: in 3 of 200 simulated runs devices do not part; hence the second seed."""
    runs = (demos()["multitask"].run(DemoOptions(quiet=True, seed=seed)) for seed in (0, 1))
    result = next(result for result in runs if result["identities_right"] == 1.0)
    assert result["state"] == "finished", result["reason"]
    assert min(result["accuracy"]) > 0.75
    assert all(device["epsilon"] < 20.0 for device in result["devices"])

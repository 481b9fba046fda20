"""Asynchronous rounds on bad days: server and devices killed, and every accepted update counted exactly once."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save
from typer.testing import CliRunner

from coterie.agent.agent import Agent
from coterie.agent.results import RunSummary
from coterie_cli.main import app
from tests.e2e.device_group import SAMPLES, DeviceGroup, Pause, Seeded
from tests.e2e.real_platform import SHAPES, RealPlatform, real_platform

ASYNCHRONOUS = {"mode": "asynchronous", "parameters": {"asynchronous": {"buffer": 2}}, "rounds": 5}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPlatform]:
    with real_platform(tmp_path_factory.mktemp("asynchronous")) as result:
        yield result


@pytest.fixture(scope="module")
def device_group(platform: RealPlatform) -> DeviceGroup:
    return DeviceGroup(platform)


def accepted(platform: RealPlatform, task: str) -> Counter[str]:
    """Updates of each device that counted, by name."""
    names = {device.id: device.name for device in platform.admin.devices()}
    rounds = [platform.admin.round(task, r.number) for r in platform.admin.rounds(task)]
    assert [sum(p.state == "delivered" for p in r.participations) for r in rounds] == [2] * len(rounds)
    return Counter(names[p.device_id] for r in rounds for p in r.participations if p.state == "delivered")


def replay(platform: RealPlatform, task: str) -> list[dict[str, object]]:
    arguments = ["task", "replay", task, "--url", platform.processes.url, "--json"]
    done = CliRunner().invoke(app, [*arguments, "--key", platform.processes.admin_key()])
    assert done.exit_code == 0, done.output
    return list(json.loads(done.output))


def test_a_server_killed_twice_goes_on_and_every_model_can_be_made_again(
    platform: RealPlatform, device_group: DeviceGroup
) -> None:
    """eve holds version 0 while the server dies, comes back, steps on and dies again; her work counts, once."""
    rounds = 15  # enough that the others are still at work when the server dies and her work arrives
    task = device_group.publish(**ASYNCHRONOUS | {"rounds": rounds}, min_devices=3)
    pause = Pause("eve", 1)
    shift = device_group.start(task, pause=pause)
    shift.until(pause)
    platform.kill("aggregation")
    platform.restart("aggregation")
    platform.wait_until(lambda: platform.admin.task(task).round >= 3)
    platform.kill("aggregation")
    platform.restart("aggregation")
    pause.go_on.set()
    shift.wait()
    platform.final_model(task)
    done = accepted(platform, task)
    by_summary = {name: _accepted_by(summary) for name, summary in shift.summaries.items()}
    assert done == Counter(by_summary)
    assert done.total() == 2 * rounds
    stale = [p for r in platform.admin.rounds(task) for p in platform.admin.round(task, r.number).participations]
    assert any(p.base == 1 and p.round >= 3 for p in stale if p.state == "delivered")
    rows = replay(platform, task)
    assert [(row["updates"], row["same"], row["note"]) for row in rows] == [(2, True, "")] * rounds


def test_a_device_killed_after_its_work_hands_it_in_when_it_comes_back(
    platform: RealPlatform, device_group: DeviceGroup
) -> None:
    """What was prepared from version 0 and never sent counts when the device starts again, two versions later."""
    task = device_group.publish(**ASYNCHRONOUS, min_devices=3)
    home = device_group.homes["eve"]
    agent = device_group._agent("eve", Pause())
    agent.join(task)
    pause = Pause("ada", 3)
    shift = device_group.start(task, ("ada", "bob"), pause)
    (item,) = agent.platform.work(tasks=[task], wait_seconds=20.0).items
    prepared = agent._bench.prepare(item)
    agent.close()
    platform.wait_until(lambda: platform.admin.task(task).round >= item.round + 2)
    again = Agent(home.folder, samples=SAMPLES, poll_seconds=1.0, choose=lambda work: Seeded("eve", Pause()))
    again.join(task)
    summary = RunSummary()
    again._last = None
    again._work_once(summary)
    again.close()
    (result,) = summary.rounds
    assert (result.round, result.outcome) == (item.round, "accepted")
    assert prepared.round == item.round
    with platform.as_device(home) as device:
        assert [p.note for p in device.participations(task, again.identity.id) if p.round == item.round] == [
            f"counted in round {next(p.round for p in device.participations(task, again.identity.id) if p.base)}"
        ]
    pause.go_on.set()
    platform.admin.cancel_task(task)
    shift.wait()


def test_a_device_of_curl_alone_takes_part(platform: RealPlatform, device_group: DeviceGroup) -> None:
    """Work fetched, an update put two versions late: the plain routes, unchanged."""
    task = device_group.publish(**ASYNCHRONOUS, min_devices=3)
    identity = device_group.homes["eve"].identity()
    assert identity is not None
    url, bearer = identity.url, f"Authorization: Bearer {identity.api_key}"

    def curl(*arguments: str, data: bytes = b"") -> dict[str, Any]:
        command = ["curl", "-sS", "-H", bearer, *arguments]
        return dict(json.loads(subprocess.run(command, input=data, check=True, capture_output=True).stdout))

    place = f"{url}/v1/tasks/{task}"
    sent = ["-H", "Content-Type: application/json", "-d", '{"samples": 5}']
    curl("-X", "PUT", *sent, f"{place}/enrolments/{identity.id}")
    pause = Pause("bob", 4)
    shift = device_group.start(task, ("ada", "bob"), pause)
    work = curl(f"{url}/v1/work?task={task}&wait=20")
    (item,) = work["items"]
    platform.wait_until(lambda: platform.admin.task(task).round >= item["round"] + 2)
    body = save({name: np.ones(shape, np.float32) for name, shape in SHAPES.items()})
    put = ["-X", "PUT", "--data-binary", "@-", "-H", f"Coterie-Digest: {hashlib.sha256(body).hexdigest()}"]
    put += ["-H", 'Coterie-Update: {"form": "mean", "weight": 5}', "-H", "Content-Type: application/octet-stream"]
    where = f"{place}/rounds/{item['round']}/updates/{identity.id}"
    assert curl(*put, where, data=body)["outcome"] == "accepted"
    assert curl(*put, where, data=body)["outcome"] == "repeated"
    pause.go_on.set()
    platform.admin.cancel_task(task)
    shift.wait()


def _accepted_by(summary: RunSummary) -> int:
    return sum(result.outcome in ("accepted", "repeated") for result in summary.rounds)

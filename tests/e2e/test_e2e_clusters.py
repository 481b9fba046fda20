"""Clusters over the real platform: what is stored of a member, who is paid what, and heads that go away."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.agent.agent import Agent
from coterie.agent.home import DeviceHome, introduce
from coterie.agent.report import Delivery
from coterie.client import Platform
from coterie.errors import InvalidRequest, NotAllowed, RoundOver
from coterie.privacy.ledger import Limit
from coterie.records import Participation, Task
from coterie.strategies.clusters import Clusters
from coterie.strategies.context import RoundContext
from services.topology.domain.quality import QualityModel
from tests.e2e.real_platform import ROOT, SHAPES, RealPlatform, model

OPEN_LIMIT = Limit(1e6, 1e-5, "device", allow_raw=True)
TOGETHER, ALONE = 49.15085508930, 32.36864570571
"""Payoffs of the specification's clique and of a device alone."""
MILLION = 1_000_000


class Learner:
    """A trainer that needs no torch: training adds a change given beforehand."""

    samples = 10

    def __init__(self, change: Mapping[str, Any]) -> None:
        self.change, self.state = change, dict(change)

    def load(self, tensors: Mapping[str, Any]) -> None:
        self.state = dict(tensors)

    def evaluate(self) -> dict[str, float]:
        return {"accuracy": 0.5}

    def train(self, recipe: Any, seed: int) -> None:
        self.state = {name: value + self.change[name] for name, value in self.state.items()}

    def parameters(self) -> dict[str, Any]:
        return self.state


def change(seed: int, norm: float = 0.5) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    drawn = {name: draw.standard_normal(shape) for name, shape in SHAPES.items()}
    length = math.sqrt(sum(float((value**2).sum()) for value in drawn.values()))
    return {name: (value / length * norm).astype(np.float32) for name, value in drawn.items()}


class Scripted:
    """Works in clusters with a change given beforehand; `then` is called between working and handing in."""

    def __init__(self, made: Mapping[str, Any], then: Callable[[RoundContext], None] = lambda context: None) -> None:
        self.made, self.then = made, then

    def prepare(self, context: RoundContext) -> Delivery:
        training: Any = Learner(self.made)
        delivery = Clusters().prepare(replace(context, training=training, public_figures=True))
        self.then(context)
        return delivery


class Stuck:
    """Never gets done."""

    def prepare(self, context: RoundContext) -> Delivery:
        (context.fetch(context.work.model_digests[0]).parent / "stuck").touch()
        time.sleep(600)
        raise AssertionError("the condition did not hold within the limit")


class Society:
    """Devices with ties between them, and a publisher with credits."""

    def __init__(self, platform: RealPlatform, names: str, ties: list[tuple[str, str]], label: str) -> None:
        self.platform, self.label = platform, label
        self.homes: dict[str, DeviceHome] = {}
        registered = platform.register(*(f"{label}-{name}" for name in names.split()))
        for name in names.split():
            self.homes[name] = registered[f"{label}-{name}"]
        for pair in ties:
            introduce(*(self.homes[name] for name in pair))
        self.threads: list[threading.Thread] = []
        self.faults: list[BaseException] = []
        platform.meet(*((self.homes[a], self.homes[b]) for a, b in ties))
        made = platform.admin.create_key("publisher", f"publisher {label}")
        self.publisher = platform.connect(made.api_key)
        platform.admin.deposit(self.publisher.me().subject, 2000 * MILLION, key="opening")

    def id(self, name: str) -> str:
        identity = self.homes[name].identity()
        assert identity is not None
        return identity.id

    def publish(self, **specification: Any) -> str:
        digest = self.publisher.upload_model(model())
        defaults: dict[str, Any] = {
            "preset": "clusters",
            "rounds": 1,
            "min_devices": 3,
            "quorum": 0.7,
            "round_seconds": 60.0,
            "training": {"clip_norm": 1.0},
            "parameters": {"pricing": {"credits_per_point": 1.0}},
            "escrow_microcredits": 1000 * MILLION,
        }
        fields = {"name": self.label, "model_digests": [digest]} | defaults | specification
        task = self.publisher.create_task(**fields)
        return task.id

    def run(self, name: str, task: str, work: Any, limit: Limit = OPEN_LIMIT) -> None:
        agent = Agent(
            self.homes[name].folder,
            samples=10,
            limit=limit,
            cache=self.platform.cache,
            poll_seconds=1.0,
            choose=lambda item: work,
        )

        def body() -> None:
            try:
                agent.join(task)
                agent.run()
            except BaseException as error:
                self.faults.append(error)

        self.threads.append(threading.Thread(target=body, daemon=True))
        self.threads[-1].start()

    def start(self, task: str) -> None:
        """Starts the task when all have enrolled."""
        admin = self.platform.admin
        self.platform.wait_until(lambda: bool(self.faults) or admin.task(task).enrolled == len(self.homes))
        assert not self.faults, self.faults
        self.publisher.start_task(task)

    def end(self, task: str) -> Task:
        ended = self.platform.admin.wait_for_end(task)
        for thread in self.threads:
            thread.join(30)
        assert not self.faults, self.faults
        assert ended.state == "finished", f"{ended.reason}\n{self.platform.logs()}"
        self.publisher.close()
        return ended

    def parts(self, task: str, number: int = 1) -> dict[str, Participation]:
        names = {self.id(name): name for name in self.homes}
        result = self.platform.admin.round(task, number).participations
        return {names[part.device_id]: part for part in result}

    def paid(self, task: str, number: int = 1) -> dict[str, int]:
        names = {self.id(name): name for name in self.homes}
        payments = self.platform.admin.payments(task=task)
        return {names[p.device_id]: p.amount_microcredits for p in payments if p.round == number}

    def trust(self, a: str, b: str) -> float:
        peers = self.platform.admin.trust_peers(self.id(a))
        return next((peer.trust for peer in peers if peer.device_id == self.id(b)), 0.0)


def holds(folder: Path, needle: bytes) -> list[str]:
    """Files under a folder that contain these bytes."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and needle in path.read_bytes()]


def test_platform_never_holds_members_update_and_free_rider_is_found_out(
    shared_platform: RealPlatform,
) -> None:
    """h knows all others and so is head; f sends nothing; no device knows s."""
    ties = [("h", "a"), ("h", "b"), ("h", "f"), ("a", "b")]
    society = Society(shared_platform, "h a b f s", ties, "free")
    task = society.publish()
    planted = change(1)
    needle = planted["weight"].tobytes()
    seen: list[list[str]] = []
    known: list[list[str]] = []

    def search(context: RoundContext) -> None:
        # Letters lie with the platform now, the sum is ready and not yet handed in.
        seen.append(holds(shared_platform.folder / "platform", needle))
        known.append(holds(shared_platform.folder / "platform", model()[-40:]))

    society.run("h", task, Scripted(change(2), search))
    society.run("a", task, Scripted(planted))
    society.run("b", task, Scripted(change(3)))
    society.run("f", task, Scripted({name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}))
    society.run("s", task, Scripted(change(4)))
    society.start(task)
    society.end(task)
    assert seen == [[]]
    assert known != [[]], "the search finds what is stored"
    assert holds(shared_platform.folder / "platform", needle) == []
    assert holds(shared_platform.folder / "cache", needle) == []

    plan = shared_platform.admin.plan(task)
    roles = {assignment.device_id: (assignment.role, assignment.noise_multiplier) for assignment in plan.assignments}
    assert roles[society.id("h")] == ("head", 0.0)
    assert roles[society.id("a")] == roles[society.id("b")] == roles[society.id("f")] == ("member", 0.0)
    assert roles[society.id("s")] == ("solo", 0.6)
    assert plan.details["stable"] is True

    parts = society.parts(task)
    assert {name: part.state for name, part in parts.items()} == {
        "h": "delivered", "a": "delivered", "b": "delivered", "f": "rejected", "s": "delivered",
    }  # fmt: skip
    assert parts["f"].note == "by its head: its update is zero"
    paid = society.paid(task)
    assert set(paid) == {"h", "a", "b", "s"}
    total = sum(paid.values())
    assert total == math.floor((3 * TOGETHER + ALONE) * MILLION)  # to the micro-credit
    assert paid["s"] == pytest.approx(ALONE * MILLION, abs=1)
    assert paid["a"] == pytest.approx(TOGETHER * MILLION, abs=1)
    # f's agent objects by itself, as any member's does whose report came in time: that costs both a little.
    assert parts["f"].judged_by == society.id("h")
    assert parts["f"].objection.startswith("its letter and its report came in time")
    assert [round_.disputed for round_ in shared_platform.admin.rounds(task)] == [1]
    shared_platform.wait_until(lambda: society.trust("h", "f") < society.trust("h", "a"))
    book = shared_platform.admin.verify_book()
    assert book.sound is True


def test_member_whose_owner_does_not_know_head_goes_on_alone_with_noise(shared_platform: RealPlatform) -> None:
    """The platform trusts a and c to h; the circle of c is empty."""
    society = Society(shared_platform, "h a c", [("h", "a"), ("h", "c"), ("a", "c")], "unknown")
    for other in ("h", "a"):
        society.homes["c"].save_circle(society.homes["c"].circle().without(society.id(other)))
        society.homes[other].save_circle(society.homes[other].circle().without(society.id("c")))
    task = society.publish(rounds=3, quorum=0.6)
    for seed, name in enumerate("hac"):
        society.run(name, task, Scripted(change(seed)))
    society.start(task)
    society.end(task)
    states = [{name: part.state for name, part in society.parts(task, number).items()} for number in (1, 2, 3)]
    assert states[-1] == {"h": "delivered", "a": "delivered", "c": "delivered"}
    assignments = {assignment.device_id: assignment for assignment in shared_platform.admin.plan(task).assignments}
    assert (assignments[society.id("c")].role, assignments[society.id("c")].noise_multiplier) == ("solo", 0.6)
    assert sorted(assignments[society.id(name)].role for name in "ha") == ["head", "member"]
    spent = society.homes["c"].ledger().spent()
    assert (spent.raw_releases, spent.releases >= 1) == (0, True)
    declined = [event for event in shared_platform.admin.events(task) if event.kind == "work.declined"]
    assert declined
    assert all("is not in this device's circle" in event.message for event in declined)


def test_a_task_begins_with_the_clusters_another_ended_with(
    shared_platform: RealPlatform,
) -> None:
    """Three friends: a task, and one that begins with its clusters."""
    society = Society(shared_platform, "h a b", [("h", "a"), ("h", "b"), ("a", "b")], "again")
    tasks = [society.publish(name="again-1", quorum=1.0)]
    begun = {"topology": {"start_from": tasks[0]}, "pricing": {"credits_per_point": 1.0}}
    tasks.append(society.publish(name="again-2", quorum=1.0, parameters=begun))
    with pytest.raises(InvalidRequest, match=r"start_from: no such parameter; topology star takes none"):
        society.publish(name="again-4", preset="fedavg", parameters={"topology": {"start_from": tasks[0]}})
    other = shared_platform.admin.create_key("publisher", "another publisher").api_key
    with (
        Platform(shared_platform.processes.url, other, cache=shared_platform.cache) as stranger,
        pytest.raises(NotAllowed, match="belongs to another publisher"),
    ):
        digests = [stranger.upload_model(model())]
        stranger.create_task(name="peek", preset="clusters", model_digests=digests, parameters=begun)
    for number, task in enumerate(tasks):
        society.threads.clear()
        for seed, name in enumerate("hab"):
            society.run(name, task, Scripted(change(10 * number + seed)))
        society.start(task)
        shared_platform.admin.wait_for_end(task)
        for thread in society.threads:
            thread.join(30)
    plans = [shared_platform.admin.plan(task) for task in tasks]
    assert [plan.details["transfers_made"] for plan in plans] == [2, 0]
    assert [sorted(assignment.role for assignment in plan.assignments) for plan in plans] == [
        ["head", "member", "member"]
    ] * 2


def test_uniform_noise_and_none_run_in_clusters_to_the_target(
    shared_platform: RealPlatform,
) -> None:
    """Three friends with the same noise for all, and without any until 40 % are reached."""
    society = Society(shared_platform, "h a b", [("h", "a"), ("h", "b"), ("a", "b")], "rivals")
    pay = {"pricing": {"credits_per_point": 1.0}}
    tasks = {
        "uniform": society.publish(
            name="rivals-uniform", quorum=1.0, privacy="uniform",
            parameters={"privacy": {"noise_multiplier": 0.25}, **pay},
        ),
        "none": society.publish(
            name="rivals-none", quorum=1.0, privacy="none", rounds=5, parameters=pay,
            stop={"metric": "accuracy", "at": 0.4},
        ),
    }  # fmt: skip
    ended = {}
    for number, (scheme, task) in enumerate(tasks.items()):
        society.threads.clear()
        for seed, name in enumerate("hab"):
            society.run(name, task, Scripted(change(100 * number + seed)))
        society.start(task)
        ended[scheme] = shared_platform.admin.wait_for_end(task)
        for thread in society.threads:
            thread.join(30)
    truth = QualityModel()
    society.publisher.report_measurement(tasks["uniform"], 1, {"loss": 0.31, "accuracy": 0.91})
    elsewhere = [
        {
            "noise": sigma,
            "non_iid": 1.0,
            "loss": float(truth.loss(sigma, 1.0)),
            "accuracy": float(truth.quality(sigma, 1.0)),
        }
        for sigma in (0.0, 0.15, 0.3, 0.45, 0.6)
    ]
    fitted = society.publisher.what_if("quality", {"tasks": [tasks["uniform"]], "measured": elsewhere})
    assert fitted["measured"][-1] == {"noise": 0.25, "non_iid": 1.0, "loss": 0.31, "accuracy": 91.0}
    assert fitted["loss_rmse"] > 0.0
    society.end(tasks["none"])
    assert {item.state for item in ended.values()} == {"finished"}
    assignments = {scheme: shared_platform.admin.plan(task).assignments for scheme, task in tasks.items()}
    assert {assignment.noise_multiplier for assignment in assignments["uniform"]} == {0.25}
    assert {assignment.noise_multiplier for assignment in assignments["none"]} == {0.0}
    charged = {entry.charge.multiplier for entry in society.homes["a"].ledger().history() if entry.charge.multiplier}
    assert 0.25 in {round(multiplier, 9) for multiplier in charged}
    for scheme, task in tasks.items():
        assert len(society.paid(task)) == 3, scheme
    assert "accuracy reached 0.5" in ended["none"].reason
    assert len(list(shared_platform.admin.rounds(tasks["none"]))) < 5


TRIANGLE_AND_TAIL = [("h", "a"), ("h", "b"), ("h", "c"), ("a", "b")]


def check_replaced(society: Society, task: str, state: str) -> None:
    """h was lost in round 1: a, b and c continued with a new head, and all three were paid for it.

    c knows a and b through h alone: it sends its update with noise. V = 0.52 Σq − 1.2 · 3 by the plan's qualities.
    """
    (round_,) = society.platform.admin.rounds(task)
    assert (round_.attempt, round_.state) == (2, "done")
    parts = society.parts(task)
    assert {name: part.state for name, part in parts.items()} == {
        "h": state, "a": "delivered", "b": "delivered", "c": "delivered",
    }  # fmt: skip
    assert sorted(parts[name].role for name in "ab") == ["head", "member"]
    assert parts["c"].role == "member"
    assignments = {assignment.device_id: assignment for assignment in society.platform.admin.plan(task).assignments}
    assert {name: assignments[society.id(name)].noise_multiplier > 0 for name in "abc"} == {
        "a": False,
        "b": False,
        "c": True,
    }
    paid = society.paid(task)
    assert set(paid) == {"a", "b", "c"}
    assert ALONE * MILLION < paid["c"] < paid["a"]
    value = sum(0.52 * assignment.weight - 1.2 for assignment in assignments.values())
    assert sum(paid.values()) == math.floor(value * MILLION)


def test_when_head_is_killed_its_cluster_elects_another_in_same_round(shared_platform: RealPlatform) -> None:
    society = Society(shared_platform, "h a b c", TRIANGLE_AND_TAIL, "killed")
    task = society.publish(round_seconds=12.0)
    command = [sys.executable, "-m", "tests.e2e.test_e2e_clusters", str(society.homes["h"].folder), task]
    environment = {**os.environ, "COTERIE_CACHE": str(society.homes["h"].folder / "cache")}
    head = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        for seed, name in enumerate("abc"):
            society.run(name, task, Scripted(change(seed)))
        society.start(task)
        stuck = society.homes["h"].folder / "cache"
        shared_platform.wait_until(lambda: any(stuck.rglob("stuck")), 60.0)
    finally:
        head.kill()
        head.wait()
    society.end(task)
    check_replaced(society, task, "dropped")
    # c released twice, raw to the lost head and then noised, and both are on its books.
    spent = society.homes["c"].ledger().spent()
    assert (spent.raw_releases, spent.releases) == (1, 1)
    assert society.trust("h", "a") < 0.7


def test_round_closes_before_its_deadline_when_the_head_declines(shared_platform: RealPlatform) -> None:
    society = Society(shared_platform, "h a b c", TRIANGLE_AND_TAIL, "declined")
    task = society.publish(round_seconds=300.0)
    for seed, name in enumerate("abc"):
        society.run(name, task, Scripted(change(seed)))
    society.run("h", task, Scripted(change(9)), Limit(8.0, 1e-5))
    society.start(task)
    society.end(task)
    check_replaced(society, task, "declined")
    events = shared_platform.admin.events(task)
    assert any(e.kind == "round.reopened" and society.id("h") in e.message for e in events)


def test_a_report_alone_earns_nothing(shared_platform: RealPlatform) -> None:
    """A device alone must hand in an update, a member's report counts only once its letter is there."""
    society = Society(shared_platform, "s m n", [("m", "n")], "idle")
    task = society.publish(min_devices=2, quorum=1.0)
    report = Delivery(None, 50.0, form="report").report()
    for name in "smn":
        with shared_platform.as_device(society.homes[name]) as device:
            device.enrol(task, society.id(name), samples=10)
    society.start(task)
    refused: set[str] = set()
    for name in "smn":
        with shared_platform.as_device(society.homes[name]) as device:
            (item,) = device.work(tasks=[task], wait_seconds=30.0).items
            kind = RoundOver if item.role == "member" else InvalidRequest
            with pytest.raises(kind):
                device.put_update(task, 1, society.id(name), report=report, body=None)
            refused.add(item.role)
    assert refused == {"solo", "head", "member"}
    for seed, name in enumerate("smn"):
        society.run(name, task, Scripted(change(seed)))
    society.end(task)
    assert {part.state for part in society.parts(task).values()} == {"delivered"}


@pytest.mark.slow
def test_the_example_of_the_documentation_works(shared_platform: RealPlatform, tmp_path: Path) -> None:
    """The publisher's and the device's code as printed, with three owners' devices."""
    import torch

    from coterie.learning.training import model_bytes, single_threaded

    single_threaded()
    page = (ROOT / "docs/howto/presets/clusters.md").read_text()
    published, device = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    admin, url = shared_platform.admin, shared_platform.processes.url
    made = admin.create_key("publisher", "documented")
    admin.deposit(made.principal.subject, 100 * MILLION, key="opening")
    place: dict[str, Any] = {
        "url": url,
        "publisher_key": made.api_key,
        "initial_model": model_bytes(torch.nn.Linear(4, 3)),
    }
    exec(published, place)
    faults: list[BaseException] = []

    def work(number: int) -> None:
        inputs = torch.randn(30, 4, generator=torch.Generator().manual_seed(number))
        token = admin.issue_token(admin.create_owner(f"reader {number}").id).token
        dataset = (inputs, inputs[:, :3].argmax(dim=1))
        own = {"url": url, "token": token, "folder": tmp_path / str(number), "module": torch.nn.Linear(4, 3)}
        try:
            exec(device.replace('join("digits")', f"join({place['task'].id!r})"), own | {"dataset": dataset})
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not faults, faults
    task = admin.task(place["task"].id)
    assert (task.state, task.round) == ("finished", 8), task.reason


if __name__ == "__main__":
    agent = Agent(Path(sys.argv[1]), samples=10, limit=OPEN_LIMIT, choose=lambda work: Stuck())
    agent.join(sys.argv[2])
    agent.run()

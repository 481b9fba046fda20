"""The chaos tests' tasks, one per preset, with four devices whose learning is repeatable."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from coterie.agent.agent import Agent
from coterie.agent.home import DeviceHome, introduce
from coterie.agent.registration import register_device
from coterie.agent.report import Delivery
from coterie.client import Platform
from coterie.client.trust import Meeting
from coterie.learning.numpy_learner import Arrays, NumpyLearner
from coterie.privacy.ledger import Limit
from coterie.privacy.simulation import SeededStream
from coterie.records import Task, WorkItem
from coterie.strategies import Strategy, strategy_for
from coterie.strategies.context import RoundContext
from coterie_cli.question_task import initial_model
from tests.chaos.deployment import GATEWAYS, PATIENT, Deployment

DEVICES = ("ada", "bob", "cas", "dot")
FEATURES = 4
MILLION = 1_000_000
PATIENCE_SECONDS = 300.0
"""How long anything may take, at least; a rough run has also a multiple of what the calm one took."""
HOME_SECONDS = 60.0
"""A device that receives a stop signal stops within a request."""
QUESTION = "How warm is it, in °C?"


@dataclass(frozen=True)
class Play:
    """A preset's task, and whether chance has no part in its model once noise is drawn from a seed.

    private: what owners keep on their devices. repeats: whether the model must be that of a calm run to the bit,
    provided that every round needed one attempt, as without faults. thought_seconds: how long the first device takes
    over its work, the second twice as long, and so on, so that faults find them at it. owners: of the devices, in turn.
    stranger: whether the last device is another owner's and has met no device, so that none trusts it.
    """

    preset: str
    specification: dict[str, Any] = field(default_factory=dict)
    private: dict[str, Any] = field(default_factory=dict)
    profile: Callable[[int], dict[str, Any]] = lambda _: {}
    models: int = 1
    limit: Limit = field(default_factory=lambda: Limit(1e6, 1e-5, allow_raw=True))
    escrow: int = 0
    repeats: bool = True
    rounds: int = 5
    thought_seconds: float = 0.4
    owners: int = 1
    stranger: bool = False
    name: str = ""

    @property
    def title(self) -> str:
        return self.name or self.preset


def _near(number: int) -> dict[str, Any]:
    return {"location": {"x_metres": 40.0 * number, "y_metres": 10.0}}


PLAYS = {
    play.title: play
    for play in (
        Play("fedavg"),
        Play(
            "clusters",
            {"training": {"clip_norm": 1.0}, "parameters": {"pricing": {"credits_per_point": 1.0}}},
            limit=Limit(1e6, 1e-5, "device", allow_raw=True),
            escrow=900 * MILLION,
            # Trust ages, and noise follows trust: to the bit it repeats where there is all trust or none.
            stranger=True,
        ),
        # A mesh's models stay on its devices, and whom a device has heard by its deadline is a matter of time.
        Play(
            "mesh",
            {
                "training": {"learning_rate": 0.5},
                "parameters": {"topology": {"wait_share": 0.4}},
                "round_seconds": 30.0,
            },
            repeats=False,
            rounds=3,
        ),
        Play(
            "market",
            {"privacy_unit": "example", "parameters": {"pricing": {"accuracy_weight": 0.02}}},
            private={"costs": {"quadratic": 1.0, "linear": 0.04, "fixed": 0.0}},
            limit=Limit(1e6, 1e-5),
            escrow=40 * MILLION,
        ),
        Play(
            "survey",
            {
                "parameters": {
                    "survey": {"question": QUESTION, "low": 15.0, "high": 30.0},
                    "pricing": {"constant": 5.0, "own_care": 0.5, "social_care": 0.25},
                }
            },
            limit=Limit(1e6, 1e-5),
            escrow=20 * MILLION,
            rounds=1,
            thought_seconds=3.0,
        ),
        Play(
            "multitask",
            {"privacy_unit": "example", "parameters": {"privacy": {"dimension": 100.0}}},
            profile=_near,
            models=2,
            limit=Limit(1e6, 1e-5),
        ),
        # No preset, but a separate strategy: every device is also a clerk.
        Play(
            "fedavg",
            {"parameters": {"sums": {"mode": "secure", "offer_seconds": 120, "clerk_seconds": 120}}},
            rounds=3,
            owners=len(DEVICES),
            name="secure",
        ),
    )
}
CELL = {"x_metres": 0.0, "y_metres": 0.0, "blocks": 4, "power_watts": 0.01, "bandwidth_hertz": 150e3}
CELL |= {"delay_limit_seconds": 0.4, "radius_metres": 500.0}


def learner(number: int) -> NumpyLearner:
    """Least squares on points of a device's own."""
    draw = np.random.default_rng(number)
    inputs = draw.standard_normal((20, FEATURES)).astype(np.float32)
    data = (inputs, inputs.sum(axis=1))

    def error(model: Arrays, inputs: NDArray[Any], targets: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(inputs @ model["w"] - targets)

    return NumpyLearner(
        {"w": np.zeros(FEATURES, np.float32)},
        data,
        losses=lambda *seen: error(*seen) ** 2 / 2.0,
        gradients=lambda model, inputs, targets: {"w": error(model, inputs, targets)[:, None] * inputs},
    )


class Slowly:
    """A strategy over which a device takes its time, so that faults find it at work."""

    def __init__(self, strategy: Strategy, seconds: float) -> None:
        self._strategy, self._seconds = strategy, seconds

    def prepare(self, context: RoundContext) -> Delivery:
        time.sleep(self._seconds)
        return self._strategy.prepare(context)


class RoundInputs:
    """The devices of one run, with one folder for all homes, half of them behind each gateway.

    They are at work until the task has ended, and no longer than the `with` block: no run leaves a device behind.
    """

    def __init__(self, deployment: Deployment, play: Play, folder: Path) -> None:
        self.deployment, self.play = deployment, play
        self._threads: list[threading.Thread] = []
        self.faults: list[BaseException] = []
        admin = deployment.admin
        belongs = [number % play.owners for number in range(len(DEVICES))]
        if play.stranger:
            belongs[-1] = play.owners
        owners = [admin.create_owner(f"owner {secrets.token_hex(4)}").id for _ in set(belongs)]
        tokens = [admin.issue_token(owner, uses=len(DEVICES)).token for owner in owners]
        self.homes: list[DeviceHome] = []
        for number, name in enumerate(DEVICES):
            home = DeviceHome(folder / name)
            url = deployment.links[GATEWAYS[number % 2]].url
            register_device(home, url, tokens[belongs[number]], name=name, profile=play.profile(number))
            answers = {"answers": {QUESTION: 18.0 + 2.0 * number}} if play.preset == "survey" else {}
            home.save_private_settings(play.private | answers)
            self.homes.append(home)
        introduce(*self.homes)
        self.agents = [self._agent(number, home) for number, home in enumerate(self.homes)]
        self._meet()

    def __enter__(self) -> RoundInputs:
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents:
            agent.stop()
        for thread in self._threads:
            thread.join(HOME_SECONDS)
        for agent in self.agents:
            agent.close()
        left = [thread.name for thread in self._threads if thread.is_alive()]
        assert not left, f"{left} did not go home within {HOME_SECONDS} s"

    def _agent(self, number: int, home: DeviceHome) -> Agent:
        def noise() -> SeededStream:
            return SeededStream(number)

        def choose(work: WorkItem) -> Strategy:
            return Slowly(strategy_for(work), self.play.thought_seconds * (1 + number))

        return Agent(
            home.folder,
            learner=learner(number),
            limit=self.play.limit,
            cache=self.deployment.cache,
            simulated_noise=noise,
            choose=choose,
            poll_seconds=2.0,
            heartbeat_seconds=5.0,
        )

    def _meet(self) -> None:
        """Record days of meetings between all devices but the stranger, reported by both sides."""
        known = self.agents[: len(DEVICES) - self.play.stranger]
        now, ids = time.time(), [agent.identity.id for agent in known]
        for agent, me in zip(known, ids, strict=True):
            meetings = [Meeting(other, now - 14_400.0 * k, 600.0) for other in ids if other != me for k in range(1, 21)]
            agent.platform.report_meetings(me, meetings)

    def publish(self) -> str:
        """A task named alike in every run, hence with the same seeds, of a new publisher with credits."""
        play, admin = self.play, self.deployment.admin
        made = admin.create_key("publisher", f"publisher {secrets.token_hex(4)}")
        self.account = f"publisher:{made.principal.subject}"
        if play.escrow:
            admin.deposit(self.account, play.escrow, key="opening")
        if play.preset == "multitask":
            admin.put_cell("cell", **CELL)
        with Platform(admin_url(self.deployment), made.api_key, backoff=PATIENT) as publisher:
            blobs = [save({"w": np.full(FEATURES, float(line), np.float32)}) for line in range(play.models)]
            blobs = [initial_model()] if play.preset == "survey" else blobs
            wanted: dict[str, Any] = {
                "name": "same",
                "preset": play.preset,
                "model_digests": [publisher.upload_model(blob) for blob in blobs],
                "rounds": play.rounds,
                "min_devices": len(DEVICES),
                "quorum": 1.0,
                "round_seconds": 120.0,
                "seed": 7,
                "escrow_microcredits": play.escrow,
            }
            return publisher.create_task(**(wanted | play.specification)).id

    def start(self, task_id: str) -> None:
        """All join, the task starts, and each works in a thread."""
        for agent in self.agents:
            agent.join(task_id, quietly=True)
        self.deployment.admin.start_task(task_id)
        for agent in self.agents:
            self._threads.append(threading.Thread(target=self._work, args=(agent,), daemon=True))
            self._threads[-1].name = f"{self.play.title} {agent.identity.name}"
            self._threads[-1].start()

    def _work(self, agent: Agent) -> None:
        try:
            agent.run()
        except BaseException as error:
            self.faults.append(error)

    def has_ended(self) -> bool:
        """Whether no device is working."""
        return not any(thread.is_alive() for thread in self._threads)

    def end(self, task_id: str, seconds: float = PATIENCE_SECONDS) -> Task:
        """Return the task once all devices have stopped."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert not self.faults, self.faults
        pairs = zip(self.agents, self._threads, strict=True)
        stuck = [agent.identity.name for agent, thread in pairs if thread.is_alive()]
        assert not stuck, f"{stuck} still at work after {seconds} s\n{self.deployment.logs()}"
        return self.deployment.admin.wait_for_end(task_id)


def admin_url(deployment: Deployment) -> str:
    """Where people reach the platform."""
    return deployment.links[GATEWAYS[0]].url

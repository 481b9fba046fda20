"""Agents of the tests in threads: quick to start, seeded, and able to wait in the middle of a round."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field

import numpy as np
from safetensors.numpy import load_file

from coterie.agent.agent import Agent
from coterie.agent.report import Delivery
from coterie.agent.results import RunSummary
from coterie.client import Platform
from coterie.strategies.context import RoundContext
from tests.e2e.real_platform import PATIENT, RealPlatform, model

NAMES = ("ada", "bob", "eve")
SAMPLES = 10


@dataclass
class Pause:
    """A place where a device waits in the middle of a round, until told to go on."""

    device: str = ""
    round: int = 0
    reached: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def here(self, device: str, round: int) -> None:
        """Called by every device in every round."""
        if (device, round) == (self.device, self.round):
            self.reached.set()
            assert self.go_on.wait(120)


NO_PAUSE = Pause()


class Seeded:
    """Moves the model in a direction drawn from the round's seed alone."""

    def __init__(self, name: str, pause: Pause) -> None:
        self._name, self._pause = name, pause

    def prepare(self, context: RoundContext) -> Delivery:
        received = load_file(context.fetch(context.work.model_digests[0]))
        draw = np.random.default_rng(context.seed)
        change = {key: draw.standard_normal(received[key].shape).astype(np.float32) for key in sorted(received)}
        self._pause.here(self._name, context.work.round)
        return Delivery(change, float(context.samples), metrics={"loss": float(np.abs(received["bias"]).mean())})


class DeviceGroup:
    """Devices of a platform, registered once, each run in a thread per task."""

    def __init__(self, platform: RealPlatform, names: tuple[str, ...] = NAMES) -> None:
        self.platform, self.names = platform, names
        self.homes = platform.register(*names)

    def publish(self, **specification: object) -> str:
        """A task called "same" of a new publisher, so that tasks with equal names, hence seeds, can coexist."""
        made = self.platform.admin.create_key("publisher", f"publisher {secrets.token_hex(4)}")
        settings = {"rounds": 3, "min_devices": len(self.names), "round_seconds": 90.0, "quorum": 1.0} | specification
        with Platform(self.platform.processes.url, made.api_key, backoff=PATIENT) as publisher:
            digest = publisher.upload_model(model())
            task = publisher.create_task(
                name="same", preset="fedavg", model_digests=[digest], seed=7, auto_start=True, **settings
            )
        return str(task.id)

    def start(self, task_id: str, names: tuple[str, ...] | None = None, pause: Pause = NO_PAUSE) -> Shift:
        """Lets devices join the task and work on it, each in a thread."""
        return Shift(self.platform, [self._agent(name, pause) for name in names or self.names], task_id)

    def _agent(self, name: str, pause: Pause) -> Agent:
        return Agent(
            self.homes[name].folder,
            samples=SAMPLES,
            cache=self.platform.cache,
            poll_seconds=1.0,
            choose=lambda work: Seeded(name, pause),
        )


class Shift:
    """Agents at work on one task."""

    def __init__(self, platform: RealPlatform, agents: list[Agent], task_id: str) -> None:
        self._platform, self._task_id = platform, task_id
        self.summaries: dict[str, RunSummary] = {}
        self.faults: list[BaseException] = []
        self._threads = [threading.Thread(target=self._work, args=(agent, task_id)) for agent in agents]
        for thread in self._threads:
            thread.start()

    def _work(self, agent: Agent, task_id: str) -> None:
        try:
            agent.join(task_id)
            self.summaries[agent.identity.name] = agent.run()
        except BaseException as error:
            self.faults.append(error)

    def until(self, pause: Pause, seconds: float = 90.0) -> None:
        """Returns when a device waits at the pause; fails with what went wrong otherwise."""
        deadline = time.monotonic() + seconds
        while not pause.reached.wait(0.05):
            assert not self.faults, self.faults
            assert time.monotonic() < deadline, self.describe()

    def describe(self) -> str:
        """What the task says of itself."""
        admin = self._platform.admin
        events = [f"{event.kind} {event.round} {event.message}" for event in admin.events(self._task_id)]
        return "\n".join([str(admin.task(self._task_id)), *events, self._platform.logs()])

    def wait(self, seconds: float = 120.0) -> None:
        """Returns when all agents have ended, as they should."""
        for thread in self._threads:
            thread.join(seconds)
        assert not self.faults, self.faults
        assert not any(thread.is_alive() for thread in self._threads), self.describe()

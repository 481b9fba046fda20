"""Devices of different owners who know each other, for secure sums over the real platform."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from coterie.agent.agent import Agent
from coterie.agent.home import DeviceHome, introduce
from coterie.agent.registration import register_device
from coterie.client import Platform
from coterie.records import Task
from coterie_cli.processes import die_with_parent
from tests.e2e.real_platform import PATIENT, ROOT, RealPlatform, model
from tests.e2e.secure_device import agent_in

SECURE = {"mode": "secure", "offer_seconds": 5.0, "clerk_seconds": 12.0}


class NeighbourFixture:
    """Devices of different owners who know each other, and tasks of one name, hence of equal seeds."""

    def __init__(self, platform: RealPlatform, label: str, count: int) -> None:
        self.platform, self.names = platform, [f"{label}{number}" for number in range(count)]
        self.homes: dict[str, DeviceHome] = {}
        for name in self.names:
            owner = platform.admin.create_owner(f"owner of {name}").id
            token = platform.admin.issue_token(owner, uses=1).token
            self.homes[name] = DeviceHome(platform.folder / "devices" / name)
            register_device(self.homes[name], platform.processes.url, token, name=name)
        introduce(*self.homes.values())
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.faults: list[BaseException] = []

    def id(self, name: str) -> str:
        identity = self.homes[name].identity()
        assert identity is not None
        return identity.id

    def publish(self, *, secure: bool = True, noise: float = 0.0, **specification: Any) -> str:
        admin = self.platform.admin
        made = admin.create_key("publisher", f"publisher {secrets.token_hex(4)}")
        parameters: dict[str, Any] = {"sums": SECURE} if secure else {}
        if noise:
            parameters["privacy"] = {"noise_multiplier": noise}
        settings = {
            "rounds": 2, "min_devices": len(self.names), "round_seconds": 40.0, "quorum": 1.0, "auto_start": True,
            "privacy": "uniform" if noise else "none", "parameters": parameters, "training": {"clip_norm": 1.0},
        } | specification  # fmt: skip
        with Platform(self.platform.processes.url, made.api_key, backoff=PATIENT) as publisher:
            digest = publisher.upload_model(model())
            shown = {"name": "same", "preset": "fedavg", "model_digests": [digest], "seed": 7}
            return publisher.create_task(**shown | settings).id

    def run(
        self, task: str, names: list[str] | None = None, once_enrolled: Callable[[str], object] = lambda task: None
    ) -> Task:
        """All devices in threads, to the task's end; what is to be done when all of them have joined."""
        agents = [agent_in(self.homes[name].folder, cache=self.platform.cache) for name in names or self.names]
        return self.run_agents(agents, task, once_enrolled)

    def run_agents(
        self, agents: Iterable[Agent], task: str, once_enrolled: Callable[[str], object] = lambda task: None
    ) -> Task:
        """These agents in threads, to the task's end."""
        agents = list(agents)

        def work(agent: Agent) -> None:
            try:
                agent.join(task)
                agent.run()
            except BaseException as error:
                self.faults.append(error)

        threads = [threading.Thread(target=work, args=(agent,), daemon=True) for agent in agents]
        for thread in threads:
            thread.start()
        self.platform.wait_until(lambda: self.platform.admin.task(task).enrolled >= len(agents), 90.0)
        once_enrolled(task)
        for thread in threads:
            thread.join(150)
        assert not self.faults, self.faults
        return self.ended(task)

    def start(self, name: str, task: str, place: str = "") -> None:
        """A device as a process."""
        command = [sys.executable, "-m", "tests.e2e.secure_device", str(self.homes[name].folder), task, place]
        cache = str(self.homes[name].folder / "cache")
        with (self.platform.folder / f"device-{name}.log").open("ab") as log:  # shown when a test fails
            self.processes[name] = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "COTERIE_CACHE": cache, "OMP_NUM_THREADS": "1"},
                preexec_fn=die_with_parent,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def ended(self, task: str) -> Task:
        ended = self.platform.admin.wait_for_end(task)
        assert ended.state == "finished", f"{ended.reason}\n{self.story(task)}\n{self.platform.logs()}"
        return ended

    def story(self, task: str) -> str:
        return "\n".join(f"{e.kind} {e.round} {e.device_id} {e.message}" for e in self.platform.admin.events(task))

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()

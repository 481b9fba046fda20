"""Fixture: a platform with a history, and a console in front of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx

from coterie.agent.agent import Agent
from coterie.agent.home import DeviceHome, introduce
from coterie.agent.registration import register_device
from coterie.client import Platform
from coterie.privacy.ledger import Limit
from coterie.privacy.spending import BEYOND_LIMIT
from coterie_cli.processes import die_with_parent, free_ports
from tests.e2e.real_platform import ROOT, RealPlatform, model
from tests.e2e.test_e2e_clusters import Scripted, change

MILLION = 1_000_000
OPEN_LIMIT = Limit(1e6, 1e-5, "device", allow_raw=True)
LIAR = "<img src=x onerror=window.pwned=1>"
"""A device whose name tries to be markup."""
CAST = {"Ada": ("ada-phone", "ada-laptop"), "Grace": ("grace-phone",), "Hedy": ("hedy-watch",), "Mallory": (LIAR,)}
FRIENDS = ("ada-phone", "ada-laptop", "grace-phone")


class Console:
    """The console as a separate process."""

    def __init__(self, gateway_url: str, folder: Path, **variables: str) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / "console.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "services.console"],
                cwd=ROOT,
                env={
                    **os.environ,
                    "COTERIE_GATEWAY_URL": gateway_url,
                    "COTERIE_CONSOLE_PORT": str(port),
                    "COTERIE_CONSOLE_SIGN_INS_PER_MINUTE": "500",
                    **variables,
                },
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )
        deadline = time.monotonic() + 60.0
        while not self._answers():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health/live", trust_env=False, timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False

    def log(self) -> str:
        """Return its log."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Stop the process gracefully."""
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _scripted(seed: int, _: Any) -> Scripted:
    return Scripted(change(seed))


class Scene:
    """Owners, devices with ties, and publishers with finished and failed tasks."""

    def __init__(self, platform: RealPlatform) -> None:
        self.platform, self.admin = platform, platform.admin
        self.homes: dict[str, DeviceHome] = {}
        self.faults: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        for owner, names in CAST.items():
            made = self.admin.create_owner(owner, sharing="all" if owner == "Ada" else "own")
            token = self.admin.issue_token(made.id, uses=len(names)).token
            for number, name in enumerate(names):
                home = DeviceHome(platform.folder / "homes" / f"{owner}-{number}")
                register_device(home, platform.processes.url, token, name=name)
                self.homes[name] = home
        introduce(*self.homes.values())
        self._meet()
        self.publisher_key, self.publisher_id = self._publisher("library")
        self.rival_key, _ = self._publisher("rival")
        self.publisher = platform.connect(self.publisher_key)
        self.rival = platform.connect(self.rival_key)

    def _meet(self) -> None:
        pairs = [*combinations(FRIENDS, 2), ("grace-phone", "hedy-watch"), ("hedy-watch", LIAR)]
        now = time.time()
        self.admin.record_interactions(
            {
                "id": f"{a}-{b}-{number}",
                "device_a": self.id(a),
                "device_b": self.id(b),
                "positive": not (LIAR in (a, b) and number % 2),
                "duration_seconds": 600.0,
                "at": now - 14_400.0 * (number + 1),
                "kind": "meeting",
            }
            for a, b in pairs
            for number in range(18)
        )

    def _publisher(self, name: str) -> tuple[str, str]:
        made = self.admin.create_key("publisher", name)
        self.admin.deposit(made.principal.subject, 1000 * MILLION, key=f"opening of {name}")
        return made.api_key, made.principal.subject

    def id(self, name: str) -> str:
        """Return a device's id."""
        identity = self.homes[name].identity()
        assert identity is not None
        return identity.id

    def key(self, name: str) -> str:
        """Return a device's API key."""
        identity = self.homes[name].identity()
        assert identity is not None
        return identity.api_key

    def publish(self, platform: Platform, name: str, **specification: Any) -> str:
        """Publish a task with the tests' model and return its id."""
        defaults: dict[str, Any] = {"rounds": 3, "min_devices": 3, "quorum": 0.7, "round_seconds": 60.0, "seed": 3}
        digest = platform.upload_model(model())
        return str(platform.create_task(name=name, model_digests=[digest], **(defaults | specification)).id)

    def clusters(self, name: str, **specification: Any) -> str:
        """Publish a task of the preset clusters with payments."""
        defaults: dict[str, Any] = {
            "preset": "clusters",
            "training": {"clip_norm": 1.0},
            "parameters": {"pricing": {"credits_per_point": 0.1}},
            "escrow_microcredits": 100 * MILLION,
            "auto_start": True,
            "min_devices": len(self.homes),
            "description": "Recognise handwritten digits",
        }
        return self.publish(self.publisher, name, **(defaults | specification))

    def work(self, task: str, names: Iterable[str] | None = None) -> None:
        """Let devices join a task of the preset clusters and work on it, each in a thread."""
        for seed, name in enumerate(names or self.homes):
            agent = Agent(
                self.homes[name].folder,
                samples=10 + seed,
                limit=OPEN_LIMIT,
                cache=self.platform.cache,
                poll_seconds=1.0,
                choose=partial(_scripted, seed),
            )
            self._threads.append(threading.Thread(target=self._body, args=(agent, task), daemon=True))
            self._threads[-1].start()

    def _body(self, agent: Agent, task: str) -> None:
        try:
            agent.join(task)
            agent.run()
        except BaseException as error:
            self.faults.append(error)

    def finish(self, task: str, state: str = "finished") -> None:
        """Wait until the task has finished."""
        ended = self.admin.wait_for_end(task)
        assert not self.faults, self.faults
        assert ended.state == state, f"{ended.reason}\n{self.platform.logs()}"

    def play(self) -> None:
        """Create the history: a finished task, a failed one, and a rival's waiting one."""
        self.digits = self.clusters("digits")
        self.work(self.digits)
        noise = {"privacy": "uniform", "parameters": {"privacy": {"noise_multiplier": 1.0}}}
        self.failed = self.publish(
            self.publisher, "hopeless", preset="fedavg", min_devices=1, round_seconds=30.0, max_attempts=-1, **noise
        )
        with self.platform.as_device(self.homes["hedy-watch"]) as device:
            device.enrol(self.failed, self.id("hedy-watch"), samples=5)
            self.publisher.start_task(self.failed)
            self.platform.wait_until(lambda: self.admin.task(self.failed).round == 1)
            device.decline(self.failed, 1, BEYOND_LIMIT)
        self.secret = self.publish(self.rival, "rivals-secret", preset="fedavg")
        self.finish(self.digits)
        self.finish(self.failed, "failed")

    def close(self) -> None:
        """Close the connections."""
        self.publisher.close()
        self.rival.close()
        for thread in self._threads:
            thread.join(10)

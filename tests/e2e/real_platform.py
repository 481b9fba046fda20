"""The real platform for tests: five processes on free ports, each of which can be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from coterie.agent.cache import BlobCache
from coterie.agent.home import DeviceHome
from coterie.agent.registration import register_device
from coterie.client import Platform
from coterie.client.trust import Meeting
from coterie.protocol.transport import Backoff
from coterie_cli.processes import PlatformProcesses, die_with_parent

ROOT = Path(__file__).parents[2]
PATIENT = Backoff(patience_seconds=30.0)
SHAPES = {"weight": (5, 4), "bias": (5,)}


class RealPlatform:
    """A running platform with its admin, and devices as separate processes."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.processes = PlatformProcesses.on_free_ports(folder / "platform", environment)
        self.devices: dict[str, subprocess.Popen[bytes]] = {}
        self._homes: dict[str, Path] = {}
        self._clients: list[Platform] = []

    def start(self) -> None:
        """Starts every service and connects an admin."""
        self.processes.start(wait_seconds=120.0)
        self.cache = BlobCache(self.folder / "cache")
        self.admin = self.connect(self.processes.admin_key())

    def connect(self, api_key: str) -> Platform:
        """Return a client with this key; it closes with the platform."""
        self._clients.append(Platform(self.processes.url, api_key, cache=self.cache, backoff=PATIENT))
        return self._clients[-1]

    def stop(self) -> None:
        """Stops devices and services."""
        for name in list(self.devices):
            self.kill_device(name)
        for client in self._clients:
            client.close()
        self.processes.stop()

    def kill(self, service: str) -> None:
        """kill -9 of one service."""
        self.processes.stop_one(service, signal.SIGKILL)

    def restart(self, service: str) -> None:
        """Starts a killed service again and waits until all are healthy."""
        self.processes.start_one(service)
        self.processes.wait_until_healthy(120.0)

    # --- devices -----------------------------------------------------------------------------------------------------

    def register(self, *names: str) -> dict[str, DeviceHome]:
        """Registers devices of one owner."""
        owner = self.admin.create_owner("owner").id
        token = self.admin.issue_token(owner, uses=len(names)).token
        homes = {name: DeviceHome(self.folder / "devices" / name) for name in names}
        for name, home in homes.items():
            register_device(home, self.processes.url, token, name=name)
            self._homes[name] = home.folder
        return homes

    def meet(self, *pairs: tuple[DeviceHome, DeviceHome], good: int = 20, bad: int = 0) -> None:
        """Lets devices have met every four hours until now, the bad meetings first; each end reports its own side."""
        now, sides = time.time(), dict[Path, list[Meeting]]()
        homes = {home.folder: home for pair in pairs for home in pair}
        for a, b in pairs:
            for me, other in ((a, b), (b, a)):
                identity = other.identity()
                assert identity is not None
                sides.setdefault(me.folder, []).extend(
                    Meeting(identity.id, now - 14_400.0 * (k + 1), 600.0, positive=k < good)
                    for k in range(good + bad)
                    if k < good or me is a
                )
        for folder, meetings in sides.items():
            identity = homes[folder].identity()
            assert identity is not None
            with self.as_device(homes[folder]) as device:
                device.report_meetings(identity.id, meetings)

    def as_device(self, home: DeviceHome) -> Platform:
        """The platform as a device sees it."""
        identity = home.identity()
        assert identity is not None
        return Platform(identity.url, identity.api_key, cache=self.cache, backoff=PATIENT)

    def run_device(self, name: str, task: str, *, pause: float = 0.0) -> None:
        """Starts a registered device's agent as a process; it works `pause` seconds on each round."""
        log = (self.folder / f"device-{name}.log").open("ab")
        with log:
            self.devices[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.device", str(self._homes[name]), task, str(pause)],
                cwd=ROOT,
                env={**os.environ, "COTERIE_CACHE": str(self.cache.folder), "OMP_NUM_THREADS": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )

    def kill_device(self, name: str) -> None:
        """kill -9 of a device."""
        process = self.devices.pop(name)
        process.kill()
        process.wait()

    # --- tasks -------------------------------------------------------------------------------------------------------

    def create_task(self, name: str, **specification: Any) -> str:
        """A small task of the tests' model; its id."""
        digest = self.admin.upload_model(model())
        defaults = {"preset": "fedavg", "rounds": 3, "min_devices": 2, "round_seconds": 60.0, "seed": 7}
        return str(self.admin.create_task(name=name, model_digests=[digest], **(defaults | specification)).id)

    def wait_until(self, what: Callable[[], bool], seconds: float = 60.0) -> None:
        """Returns when `what` holds; asks again and again."""
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"this did not come about in {seconds} s\n{self.logs()}"
            time.sleep(0.05)

    def final_model(self, task_id: str) -> bytes:
        """The finished task's last model; fails when the task did not finish."""
        task = self.admin.wait_for_end(task_id)
        assert task.state == "finished", f"{task.state}: {task.reason}\n{self.logs()}"
        return self.admin.download_model(task.model_digests[0]).read_bytes()

    def logs(self) -> str:
        """The end of every log, for a failed test's message."""
        files = [*(self.folder / "platform" / "logs").glob("*.log"), *self.folder.glob("device-*.log")]
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-1500:]}" for file in files)


def model(value: float = 0.0) -> bytes:
    """The tests' model: a few numbers, all the same."""
    return save({name: np.full(shape, value, np.float32) for name, shape in SHAPES.items()})


@contextmanager
def real_platform(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[RealPlatform]:
    """A platform that is there while the block runs."""
    platform = RealPlatform(folder, environment)
    try:
        platform.start()
        yield platform
    finally:
        platform.stop()

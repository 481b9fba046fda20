"""The whole platform as child processes on this machine: start in order, wait until healthy, stop in reverse.

This package never imports the services; it starts them with `python -m services.<name>`, told by `COTERIE_…` variables
where to listen and where to keep their data.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx

from coterie.errors import CoterieError

SERVICES = ("trust", "topology", "pricing", "aggregation", "gateway")
CONSOLE = "console"
STATION = "station"
CONSOLE_PORT = 8090
GATEWAY = "gateway"
DEFAULT_PORTS = {GATEWAY: 8080}
STOP_SECONDS = 15.0
_HEALTH_PAUSE_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1
# Loaded here because a child between fork and exec should load nothing.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class CannotStart(CoterieError):
    """The platform did not come up; the message says why and what to do."""


def die_with_parent() -> None:
    """Run in a child before it becomes the program: the kernel ends it when its parent is gone, however that went."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _inherited() -> dict[str, str]:
    """This process's variables, without addresses: those of another platform are not this one's."""
    addresses = {f"COTERIE_{name.upper()}_ADDRESS" for name in SERVICES}
    return {name: value for name, value in os.environ.items() if name not in addresses}


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for entry in sockets:
            entry.bind(("127.0.0.1", 0))
        return [int(item.getsockname()[1]) for item in sockets]
    finally:
        for entry in sockets:
            entry.close()


def busy_port(ports: Mapping[str, int]) -> tuple[str, int] | None:
    """The first service whose port somebody else holds."""
    for name, port in ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return name, port
    return None


def _program(name: str) -> list[str]:
    """The module, and its arguments, that a child is."""
    return ["services.topology", STATION] if name.startswith(STATION) else [f"services.{name}"]


def planners_are_compiled() -> bool:
    """Whether the loops of the cluster and mesh planners were compiled on this machine, for this Python."""
    result = importlib.util.find_spec("services.topology.domain")
    folders = [Path(place) / "__pycache__" for place in (result.submodule_search_locations if result else None) or ()]
    retained = os.environ.get("NUMBA_CACHE_DIR", "")
    return any(any(folder.rglob("*.nbi")) for folder in ([Path(retained)] if retained else folders))


def compile_planners(*, quietly: bool = False) -> subprocess.Popen[bytes]:
    """Begins to compile them, with less priority than what people wait for; it says so unless `quietly`."""
    return subprocess.Popen(
        [sys.executable, "-m", "services.topology", "warm"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if quietly else None,
        start_new_session=True,
        preexec_fn=_behind,
    )


def _behind() -> None:
    os.nice(10)
    die_with_parent()


@dataclass(slots=True)
class PlatformProcesses:
    """The five processes of an embedded platform, and the web console where its port is given.

    Attributes:
        data: folder of databases, blobs, logs and the admin key.
        ports: of the gateway; with one for "console", the web console starts too. The others speak over Unix sockets in
            the data folder, which nobody else may enter.
        environment: further variables for the children.
        stations: base stations that are processes of their own, beside the services.
        log_to_files: write each service's log to `data/logs`; otherwise they share this process's stderr.
    """

    data: Path
    ports: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_PORTS))
    environment: Mapping[str, str] = field(default_factory=dict)
    log_to_files: bool = True
    stations: int = 0
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _claim: IO[str] | None = field(default=None, repr=False)

    @classmethod
    def on_free_ports(
        cls, data: Path, environment: Mapping[str, str] | None = None, *, stations: int = 0
    ) -> PlatformProcesses:
        """A platform that collides with no other."""
        return cls(data, {GATEWAY: free_ports(1)[0]}, environment or {}, stations=stations)

    @property
    def url(self) -> str:
        """Where the gateway answers."""
        return f"http://127.0.0.1:{self.ports['gateway']}"

    @property
    def console_url(self) -> str:
        """Where the web console answers; empty when there is none."""
        return f"http://127.0.0.1:{self.ports[CONSOLE]}" if CONSOLE in self.ports else ""

    @property
    def admin_key_file(self) -> Path:
        """Where the bootstrap admin key is."""
        return self.data / "admin.key"

    def admin_key(self) -> str:
        """The bootstrap admin key, once the platform is up."""
        return self.admin_key_file.read_text().strip()

    def start(self, *, wait_seconds: float = 60.0) -> None:
        """Starts every service and returns when all are healthy; stops what it started when one is not."""
        self.begin()
        try:
            self.wait_until_healthy(wait_seconds)
        except BaseException:
            self.stop()
            raise

    def begin(self) -> None:
        """Starts every service; `wait_until_healthy` says when they are up."""
        if importlib.util.find_spec("services") is None:
            raise CannotStart(
                "the platform's services are not installed here; run this from a checkout after `make install`, "
                "or use a platform that runs elsewhere with --url"
            )
        taken = busy_port(self.ports)
        if taken is not None:
            raise CannotStart(f"port {taken[1]} for {taken[0]} is in use; stop what listens there or choose another")
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._claim_folder()
        try:
            for name in (*SERVICES, CONSOLE) if CONSOLE in self.ports else SERVICES:
                self.start_one(name)
            for number in range(1, self.stations + 1):
                self.start_one(f"{STATION}-{number}")
        except BaseException:
            self.stop()
            raise

    def _claim_folder(self) -> None:
        """One platform per folder: a second would answer through the first one's sockets while its own services end."""
        file = (self.data / "platform.lock").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise CannotStart(
                f"{self.data} belongs to a platform that runs already; stop that one, or give this one its own --data"
            ) from error
        self._claim = file

    def start_one(self, name: str) -> None:
        """Starts one service; `wait_until_healthy` says when it is up."""
        log = None
        if self.log_to_files:
            folder = self.data / "logs"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            log = (folder / f"{name}.log").open("ab")
        try:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", *_program(name)],
                env=self._environment_of(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT if log else None,
                # Ctrl-C in a terminal reaches the whole group; children are stopped by us, in order.
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        finally:
            if log is not None:
                log.close()

    def _environment_of(self, name: str) -> dict[str, str]:
        """A child's variables; a metrics port is the first service's, the others have the next ones."""
        told = {**_inherited(), **self.variables(), **self.environment}
        first = told.get("COTERIE_METRICS_PORT", "")
        if first.isdecimal() and int(first):
            named = (*SERVICES, CONSOLE, *(f"{STATION}-{number}" for number in range(1, self.stations + 1)))
            told["COTERIE_METRICS_PORT"] = str(int(first) + named.index(name))
        return told

    def variables(self) -> dict[str, str]:
        """What the children are told."""
        return {
            "COTERIE_DATA_DIR": str(self.data),
            "COTERIE_GATEWAY_PORT": str(self.ports["gateway"]),
            "COTERIE_GATEWAY_URL": self.url,
            "COTERIE_CONSOLE_PORT": str(self.ports.get(CONSOLE, 0)),
        }

    def wait_until_healthy(self, seconds: float = 60.0) -> None:
        """Returns when the gateway says every service answers, and the console, if there is one, does too."""
        deadline = time.monotonic() + seconds
        while True:
            for name, process in self.running.items():
                if process.poll() is not None:
                    raise CannotStart(f"{name} ended with code {process.returncode} while starting; {self._hint(name)}")
            if self._healthy():
                return
            if time.monotonic() > deadline:
                raise CannotStart(f"the platform was not healthy after {seconds:.0f} s; see {self.data / 'logs'}")
            time.sleep(_HEALTH_PAUSE_SECONDS)

    def _healthy(self) -> bool:
        pages = [f"{self.url}/health/ready", *([f"{self.console_url}/health/live"] if self.console_url else [])]
        try:
            return all(httpx.get(page, timeout=5.0, trust_env=False).status_code == 200 for page in pages)
        except httpx.TransportError:
            return False

    def _hint(self, name: str) -> str:
        path = self.data / "logs" / f"{name}.log"
        if not path.exists():
            return "see its log above"
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        return f"{path} ends with: {lines[-1] if lines else '(nothing)'}"

    def ended(self) -> str | None:
        """Name of a service that has ended by itself."""
        return next((name for name, process in self.running.items() if process.poll() is not None), None)

    def start_again(self, name: str) -> int:
        """Starts a service that has ended once more; the code it ended with."""
        code = self.running.pop(name).wait()
        self.start_one(name)
        return code

    def stop(self) -> None:
        """Stops every service, stations, the console and the gateway first, each with time to drain."""
        stations = [name for name in self.running if name.startswith(STATION)]
        for name in (*stations, *reversed((*SERVICES, CONSOLE))):
            self.stop_one(name)
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def stop_one(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """Stops one service; it is killed when it does not end in time."""
        process = self.running.pop(name, None)
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

"""The platform as child processes: start in order, wait until healthy, stop in reverse order.

This package never imports the services; it starts `python -m services.<name>` and passes addresses and data folders as
`COTERIE_…` variables.
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
# Load libc here: a child must not load libraries between fork and exec.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class CannotStart(CoterieError):
    """The platform did not start; the message says why and what to do."""


def die_with_parent() -> None:
    """Let the kernel end this process when its parent ends; call it in a child before exec."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _inherited() -> dict[str, str]:
    """Return the environment without service addresses, which may belong to another platform."""
    addresses = {f"COTERIE_{name.upper()}_ADDRESS" for name in SERVICES}
    return {name: value for name, value in os.environ.items() if name not in addresses}


def free_ports(count: int) -> list[int]:
    """Find `count` different ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [int(item.getsockname()[1]) for item in sockets]
    finally:
        for item in sockets:
            item.close()


def busy_port(ports: Mapping[str, int]) -> tuple[str, int] | None:
    """Return the first service whose port another process holds, and that port."""
    for name, port in ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return name, port
    return None


def _program(name: str) -> list[str]:
    """Return the module and arguments of a child process."""
    return ["services.topology", STATION] if name.startswith(STATION) else [f"services.{name}"]


def planners_are_compiled() -> bool:
    """Whether numba has compiled the planners of clusters and meshes on this machine."""
    if cache := os.environ.get("NUMBA_CACHE_DIR", ""):
        return any(Path(cache).rglob("*.nbi"))
    package = importlib.util.find_spec("services.topology.domain")
    folders = (package.submodule_search_locations if package else None) or ()
    return any(any((Path(folder) / "__pycache__").rglob("*.nbi")) for folder in folders)


def compile_planners(*, quiet: bool = False) -> subprocess.Popen[bytes]:
    """Start compiling the planners at low priority; print progress unless `quiet`."""
    return subprocess.Popen(
        [sys.executable, "-m", "services.topology", "warm"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if quiet else None,
        start_new_session=True,
        preexec_fn=_lower_priority,
    )


def _lower_priority() -> None:
    os.nice(10)
    die_with_parent()


@dataclass(slots=True)
class PlatformProcesses:
    """The five service processes of an embedded platform, and the web console if `ports` names it.

    Attributes:
        data: folder of databases, blobs, logs and the admin key.
        ports: port of the gateway and, if it shall start, of the console. The other services use Unix sockets in the
            data folder, which only this user can enter.
        environment: further variables of the children.
        stations: number of base stations, each a separate process.
        log_to_files: write each service's log to `data/logs`; otherwise all share this process's stderr.
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
        """Make a platform on a free port."""
        return cls(data, {GATEWAY: free_ports(1)[0]}, environment or {}, stations=stations)

    @property
    def url(self) -> str:
        """URL of the gateway."""
        return f"http://127.0.0.1:{self.ports['gateway']}"

    @property
    def console_url(self) -> str:
        """URL of the web console; empty without one."""
        return f"http://127.0.0.1:{self.ports[CONSOLE]}" if CONSOLE in self.ports else ""

    @property
    def admin_key_file(self) -> Path:
        """File of the bootstrap admin key."""
        return self.data / "admin.key"

    def admin_key(self) -> str:
        """Read the bootstrap admin key of a running platform."""
        return self.admin_key_file.read_text().strip()

    def start(self, *, wait_seconds: float = 60.0) -> None:
        """Start every service and wait until all are healthy; stop them all if one fails."""
        self.begin()
        try:
            self.wait_until_healthy(wait_seconds)
        except BaseException:
            self.stop()
            raise

    def begin(self) -> None:
        """Start every service without waiting; see `wait_until_healthy`."""
        if importlib.util.find_spec("services") is None:
            raise CannotStart(
                "the platform's services are not installed; run this from a checkout after `make install`, "
                "or use a running platform with --url"
            )
        taken = busy_port(self.ports)
        if taken is not None:
            raise CannotStart(
                f"port {taken[1]} for {taken[0]} is in use; stop the process that holds it or choose another port"
            )
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
        """Lock the data folder: a second platform in it would talk to the first one's sockets."""
        file = (self.data / "platform.lock").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise CannotStart(
                f"{self.data} belongs to a running platform; stop that one, or give this one its own --data"
            ) from error
        self._claim = file

    def start_one(self, name: str) -> None:
        """Start one service without waiting; see `wait_until_healthy`."""
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
                # Ctrl-C reaches the whole process group; this process stops its children in order.
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        finally:
            if log is not None:
                log.close()

    def _environment_of(self, name: str) -> dict[str, str]:
        """Return the variables of a child; the metrics port counts up from the first service's."""
        variables = {**_inherited(), **self.variables(), **self.environment}
        first = variables.get("COTERIE_METRICS_PORT", "")
        if first.isdecimal() and int(first):
            named = (*SERVICES, CONSOLE, *(f"{STATION}-{number}" for number in range(1, self.stations + 1)))
            variables["COTERIE_METRICS_PORT"] = str(int(first) + named.index(name))
        return variables

    def variables(self) -> dict[str, str]:
        """Return the settings shared by all children."""
        return {
            "COTERIE_DATA_DIR": str(self.data),
            "COTERIE_GATEWAY_PORT": str(self.ports["gateway"]),
            "COTERIE_GATEWAY_URL": self.url,
            "COTERIE_CONSOLE_PORT": str(self.ports.get(CONSOLE, 0)),
        }

    def wait_until_healthy(self, seconds: float = 60.0) -> None:
        """Wait until the gateway reports every service healthy, and the console responds if there is one."""
        deadline = time.monotonic() + seconds
        while True:
            for name, process in self.running.items():
                if process.poll() is not None:
                    raise CannotStart(f"{name} exited with code {process.returncode} during start; {self._hint(name)}")
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
        """Return the name of a service that has exited."""
        return next((name for name, process in self.running.items() if process.poll() is not None), None)

    def start_again(self, name: str) -> int:
        """Restart a service that has exited; return its exit code."""
        code = self.running.pop(name).wait()
        self.start_one(name)
        return code

    def stop(self) -> None:
        """Stop every service, first stations, console and gateway, each with time to drain."""
        stations = [name for name in self.running if name.startswith(STATION)]
        for name in (*stations, *reversed((*SERVICES, CONSOLE))):
            self.stop_one(name)
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def stop_one(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop one service; kill it after `STOP_SECONDS`."""
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

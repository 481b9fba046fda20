"""Dumps as they lie in this folder: loaded into a database, and brought to the present.

<version>/<sqlite or postgresql>/
    <service>.db.gz or platform.sql.gz   the databases
    files.tar.gz                         platform/admin.key, platform/blobs, devices/<name>: with their permissions
    facts.json                           what was true when the platform was killed
"""

from __future__ import annotations

import gzip
import json
import struct
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import sqlalchemy as sa

from services.kit.database.engine import Database
from services.kit.runtime.settings import ServiceSettings

FOLDER = Path(__file__).parent
SERVICES = ("trust", "topology", "pricing", "aggregation")
KINDS = ("sqlite", "postgresql")


def versions() -> list[str]:
    """Versions of the platform of which there are dumps."""
    return sorted(path.name for path in FOLDER.iterdir() if (path / "sqlite" / "facts.json").exists())


@dataclass(frozen=True)
class Dump:
    """A platform of some version, killed in the middle of its tasks."""

    version: str
    kind: str

    @property
    def folder(self) -> Path:
        """Where it is stored."""
        return FOLDER / self.version / self.kind

    def facts(self) -> dict[str, Any]:
        """What was true when the platform was killed."""
        return dict(json.loads((self.folder / "facts.json").read_text()))

    def unpack_files(self, folder: Path) -> None:
        """Blobs and the admin key to `folder`/platform, the devices' folders to `folder`/devices."""
        with tarfile.open(self.folder / "files.tar.gz") as files:
            files.extractall(folder, filter="tar")

    async def load(self, settings: ServiceSettings) -> None:
        """Fills the empty databases of a platform with these settings."""
        if self.kind == "sqlite":
            settings.data_dir.mkdir(parents=True, exist_ok=True)
            for service in SERVICES:
                content = gzip.decompress((self.folder / f"{service}.db.gz").read_bytes())
                (settings.data_dir / f"{service}.db").write_bytes(content)
            return
        connection = await asyncpg.connect(settings.database_url)
        try:
            await connection.execute(gzip.decompress((self.folder / "platform.sql.gz").read_bytes()).decode())
        finally:
            await connection.close()

    async def bring_to(self, settings: ServiceSettings, now: float) -> None:
        """Moves clocks, so that the platform was killed just before `now`: open rounds go on, devices were seen.

        Written for the tables as they were dumped; call it before they are migrated. The book keeps its times: they
        are part of its hashes.
        """
        later = {"later": now - self.facts()["taken_at"]}
        async with opened(settings, "trust") as database, database.writing() as tx:
            for table, column in (("devices", "last_seen_at"), ("interactions", "at"), ("pairs", "reference_at")):
                await tx.execute(sa.text(f"UPDATE {table} SET {column} = {column} + :later WHERE {column} > 0"), later)
        async with opened(settings, "aggregation") as database, database.writing() as tx:
            result = "SELECT task_id, number, deadline_at FROM rounds WHERE state = 'open'"
            for task, number, deadline in (await tx.execute(sa.text(result))).all():
                place = {"task": task, "number": number}
                change = "opened_at = opened_at + :later, deadline_at = deadline_at + :later"
                where = "task_id = :task AND number = :number"
                await tx.execute(sa.text(f"UPDATE rounds SET {change} WHERE {where}"), place | later)
                await _move_deadline(tx, place, deadline, deadline + later["later"])


async def _move_deadline(tx: Any, place: dict[str, Any], before: float, after: float) -> None:
    """The deadline also stands in every work item: eight bytes of a message."""
    where = "task_id = :task AND round = :number"
    rows = (await tx.execute(sa.text(f"SELECT device_id, work FROM participations WHERE {where}"), place)).all()
    for device, work in rows:
        assert struct.pack("<d", before) in work, "a work item without its deadline"
        moved = work.replace(struct.pack("<d", before), struct.pack("<d", after))
        change = f"UPDATE participations SET work = :work WHERE {where} AND device_id = :device"
        await tx.execute(sa.text(change), place | {"device": device, "work": moved})


class opened:
    """A service's database, closed when the block ends."""

    def __init__(self, settings: ServiceSettings, service: str) -> None:
        self._database = Database(settings.database_for(service), service)

    async def __aenter__(self) -> Database:
        return self._database

    async def __aexit__(self, *_: object) -> None:
        await self._database.close()


def names_of(connection: sa.Connection) -> Iterator[str]:
    """The service's tables, in order of name."""
    yield from sorted(set(sa.inspect(connection).get_table_names()) - {"alembic_version"})


async def count_rows(database: Database) -> dict[str, int]:
    """Rows of every table."""
    async with database.reading() as tx:
        names = await tx.run_sync(lambda connection: list(names_of(connection)))
        return {
            name: int((await tx.execute(sa.select(sa.func.count()).select_from(sa.table(name)))).scalar_one())
            for name in names
        }

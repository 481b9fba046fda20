"""`python -m services.kit.runtime.doctor`: what this machine's settings, databases and blob store are like, as JSON.

Run by `coterie doctor`, which shows it to people. It changes nothing but a blob of its own, which it takes away again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable

import sqlalchemy as sa
from alembic.script import ScriptDirectory
from obstore.exceptions import BaseError
from pydantic import ValidationError

from services.kit.database.blobs import BlobStore
from services.kit.database.engine import Database, migrations_of
from services.kit.errors import CoterieError
from services.kit.runtime.settings import ServiceSettings

SERVICES = ("trust", "topology", "pricing", "aggregation")
PROBE = b"coterie doctor was here\n"
SECONDS = 15.0
Finding = dict[str, str]


def found(check: str, state: str, says: str, advice: str = "") -> Finding:
    """One line of the report; `state` is ok, warn or bad."""
    return {"check": check, "state": state, "found": says, "advice": advice}


async def database(settings: ServiceSettings, service: str) -> Finding:
    """Whether a service's database answers, is sound, and of a version this code knows."""
    check = f"database of {service}"
    if not settings.database_url and not (settings.data_dir / f"{service}.db").exists():
        return found(check, "ok", "none yet; made at the first start")
    opened = Database(settings.database_for(service), service)
    try:
        async with opened.reading(offload=True) as connection:
            if opened.is_sqlite:
                sound = (await connection.exec_driver_sql("PRAGMA quick_check(1)")).scalar_one()
                if sound != "ok":
                    return found(check, "bad", str(sound), "the file is damaged: restore it from a back-up")
            there = await connection.run_sync(lambda sync: sa.inspect(sync).has_table("alembic_version"))
            if not there:
                return found(check, "ok", "no tables yet; made at the first start")
            query = sa.text("SELECT version_num FROM alembic_version")
            revision = str((await connection.execute(query)).scalar_one_or_none() or "")
    except (CoterieError, sa.exc.SQLAlchemyError) as error:
        return found(check, "bad", str(error), "start the database, or correct COTERIE_DATABASE_URL")
    finally:
        await opened.close()
    scripts = ScriptDirectory.from_config(migrations_of(f"services.{service}"))
    known = {script.revision for script in scripts.walk_revisions()}
    if revision not in known:
        return found(check, "bad", f"revision {revision} is newer than this code", "install the newer version")
    if revision != scripts.get_current_head():
        return found(check, "ok", f"revision {revision}; it is brought up to date at the next start")
    return found(check, "ok", f"answers, revision {revision}")


async def blobs(settings: ServiceSettings) -> Finding:
    """Whether the blob store takes, gives back and forgets a few bytes."""
    where = settings.blob_url or str(settings.data_dir / "blobs")
    if not settings.blob_url and not (settings.data_dir / "blobs").exists():
        return found("blob store", "ok", "none yet; made at the first start")
    try:
        store = BlobStore.from_settings(settings)
        digest = await store.put_bytes(PROBE)
        back = b"".join([piece async for piece in store.stream(digest)])
        await store.delete(digest)
    except (CoterieError, BaseError, ValueError, OSError) as error:
        return found("blob store", "bad", f"{where}: {error}", "check COTERIE_BLOB_URL, its credentials and free space")
    if back != PROBE:
        return found("blob store", "bad", f"{where} gave other bytes back", "do not use this store")
    return found("blob store", "ok", f"{where} takes and gives back")


async def examine(settings: ServiceSettings) -> list[Finding]:
    """Everything, one after the other; a check that takes too long is a finding itself."""
    checks: list[tuple[str, Callable[[], Awaitable[Finding]]]] = [
        *((f"database of {name}", lambda name=name: database(settings, name)) for name in SERVICES),
        ("blob store", lambda: blobs(settings)),
    ]
    report = []
    for name, check in checks:
        try:
            report.append(await asyncio.wait_for(check(), SECONDS))
        except TimeoutError:
            report.append(found(name, "bad", f"no answer within {SECONDS:.0f} s", "see whether it is reachable"))
    return report


def main() -> int:
    """Prints the report."""
    try:
        report = asyncio.run(examine(ServiceSettings()))
    except (ValidationError, ValueError) as error:
        report = [found("settings", "bad", str(error), "correct the COTERIE_… variable it names")]
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

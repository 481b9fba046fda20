"""`python -m services.kit.runtime.doctor`: check this machine's settings, databases and blob store; print JSON.

`coterie doctor` runs it and shows the result. It changes nothing; it writes one test blob and deletes it.
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


def finding(check: str, state: str, text: str, advice: str = "") -> Finding:
    """Make a line of the report; `state` is ok, warn or bad."""
    return {"check": check, "state": state, "result": text, "advice": advice}


async def database(settings: ServiceSettings, service: str) -> Finding:
    """Check that a service's database answers, is intact, and has a version that this code knows."""
    check = f"database of {service}"
    if not settings.database_url and not (settings.data_dir / f"{service}.db").exists():
        return finding(check, "ok", "none yet; the first start creates it")
    opened = Database(settings.database_for(service), service)
    try:
        async with opened.reading(offload=True) as connection:
            if opened.is_sqlite:
                integrity = (await connection.exec_driver_sql("PRAGMA quick_check(1)")).scalar_one()
                if integrity != "ok":
                    return finding(check, "bad", str(integrity), "the file is damaged: restore it from a back-up")
            has_tables = await connection.run_sync(lambda sync: sa.inspect(sync).has_table("alembic_version"))
            if not has_tables:
                return finding(check, "ok", "no tables yet; the first start creates them")
            query = sa.text("SELECT version_num FROM alembic_version")
            revision = str((await connection.execute(query)).scalar_one_or_none() or "")
    except (CoterieError, sa.exc.SQLAlchemyError) as error:
        return finding(check, "bad", str(error), "start the database, or correct COTERIE_DATABASE_URL")
    finally:
        await opened.close()
    scripts = ScriptDirectory.from_config(migrations_of(f"services.{service}"))
    known = {script.revision for script in scripts.walk_revisions()}
    if revision not in known:
        return finding(check, "bad", f"revision {revision} is newer than this code", "install the newer version")
    if revision != scripts.get_current_head():
        return finding(check, "ok", f"revision {revision}; the next start upgrades it")
    return finding(check, "ok", f"answers, revision {revision}")


async def blobs(settings: ServiceSettings) -> Finding:
    """Check that the blob store writes, reads and deletes a few bytes."""
    where = settings.blob_url or str(settings.data_dir / "blobs")
    if not settings.blob_url and not (settings.data_dir / "blobs").exists():
        return finding("blob store", "ok", "none yet; the first start creates it")
    try:
        store = BlobStore.from_settings(settings)
        digest = await store.put_bytes(PROBE)
        back = b"".join([piece async for piece in store.stream(digest)])
        await store.delete(digest)
    except (CoterieError, BaseError, ValueError, OSError) as error:
        return finding(
            "blob store", "bad", f"{where}: {error}", "check COTERIE_BLOB_URL, its credentials and free space"
        )
    if back != PROBE:
        return finding("blob store", "bad", f"{where} returned other bytes", "do not use this store")
    return finding("blob store", "ok", f"{where} writes and reads")


async def examine(settings: ServiceSettings) -> list[Finding]:
    """Run all checks in sequence; a check that times out is a finding."""
    checks: list[tuple[str, Callable[[], Awaitable[Finding]]]] = [
        *((f"database of {name}", lambda name=name: database(settings, name)) for name in SERVICES),
        ("blob store", lambda: blobs(settings)),
    ]
    report = []
    for name, check in checks:
        try:
            report.append(await asyncio.wait_for(check(), SECONDS))
        except TimeoutError:
            report.append(finding(name, "bad", f"no answer within {SECONDS:.0f} s", "check that it is reachable"))
    return report


def main() -> int:
    """Print the report."""
    try:
        report = asyncio.run(examine(ServiceSettings()))
    except (ValidationError, ValueError) as error:
        report = [finding("settings", "bad", str(error), "correct the COTERIE_… variable it names")]
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The doctor checks databases and blob store; a database newer than the code stays unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from services.kit.database.engine import Database
from services.kit.runtime import doctor
from services.kit.runtime.settings import ServiceSettings
from tests.conftest import migrated

NEWER = "9999"


async def make_newer(settings: ServiceSettings) -> None:
    database = await migrated(settings, "topology")
    async with database.writing() as connection:
        await connection.execute(sa.text("UPDATE alembic_version SET version_num = :newer"), {"newer": NEWER})
    await database.close()


async def revision(settings: ServiceSettings) -> str:
    database = Database(settings.database_for("topology"), "topology")
    async with database.reading() as connection:
        result = (await connection.execute(sa.text("SELECT version_num FROM alembic_version"))).scalar_one()
    await database.close()
    return str(result)


async def test_a_migrated_database_is_well(settings: ServiceSettings) -> None:
    await (await migrated(settings, "topology")).close()
    report = await doctor.database(settings, "topology")
    assert (report["state"], report["result"]) == ("ok", f"answers, revision {await revision(settings)}")


async def test_a_newer_database_is_refused_unchanged(settings: ServiceSettings) -> None:
    await make_newer(settings)
    database = Database(settings.database_for("topology"), "topology")
    with pytest.raises(ValueError, match=r"newer version .*9999.* left unchanged"):
        await database.migrate("services.topology")
    await database.close()
    assert await revision(settings) == NEWER
    report = await doctor.database(settings, "topology")
    assert (report["state"], report["advice"]) == ("bad", "install the newer version")


async def test_a_damaged_file_is_found(tmp_path: Path) -> None:
    settings = ServiceSettings(data_dir=tmp_path, database_url="")
    await (await migrated(settings, "trust")).close()
    path = tmp_path / "trust.db"
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
    report = await doctor.database(settings, "trust")
    assert report["state"] == "bad"


async def test_an_absent_platform_is_no_fault_and_nothing_is_made(tmp_path: Path) -> None:
    settings = ServiceSettings(data_dir=tmp_path / "new", database_url="")
    assert {item["state"] for item in await doctor.examine(settings)} == {"ok"}
    assert not (tmp_path / "new").exists()


async def test_a_server_that_does_not_answer_is_found() -> None:
    settings = ServiceSettings(database_url="postgresql://user:x@127.0.0.1:1/none")
    report = await doctor.database(settings, "trust")
    assert (report["state"], report["advice"]) == ("bad", "start the database, or correct COTERIE_DATABASE_URL")


async def test_the_blob_store_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    settings = ServiceSettings(data_dir=tmp_path, blob_url="")
    (tmp_path / "blobs").mkdir()
    assert (await doctor.blobs(settings))["state"] == "ok"
    assert not [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    full = ServiceSettings(data_dir=tmp_path, blob_url="file:///proc/none")
    assert (await doctor.blobs(full))["state"] == "bad"

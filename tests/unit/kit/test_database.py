"""Databases: a transaction commits whole or not at all, and writers queue instead of failing."""

import asyncio

import pytest
import sqlalchemy as sa

from services.kit.database import Database, DatabaseAway
from services.kit.settings import ServiceSettings

NUMBERS = sa.Table("numbers", sa.MetaData(), sa.Column("n", sa.Integer, primary_key=True))


async def open_with_table(settings: ServiceSettings) -> Database:
    database = Database(settings.database_for("kit"), "kit")
    async with database._migration_lock(), database.engine.begin() as connection:
        await connection.run_sync(NUMBERS.metadata.create_all)
    return database


async def count(database: Database) -> int:
    async with database.reading() as connection:
        return (await connection.execute(sa.select(sa.func.count()).select_from(NUMBERS))).scalar_one()


async def test_a_block_that_raises_changes_nothing(settings: ServiceSettings) -> None:
    database = await open_with_table(settings)
    with pytest.raises(RuntimeError):
        async with database.writing() as connection:
            await connection.execute(NUMBERS.insert().values(n=1))
            raise RuntimeError
    assert await count(database) == 0
    await database.close()


async def test_fifty_writers_at_once_all_succeed_while_readers_read(settings: ServiceSettings) -> None:
    database = await open_with_table(settings)

    async def write(n: int) -> None:
        async with database.writing() as connection:
            await connection.execute(NUMBERS.insert().values(n=n))

    await asyncio.gather(*(write(n) for n in range(50)), *(count(database) for _ in range(20)))
    assert await count(database) == 50
    await database.close()


async def test_an_unreachable_server_is_an_error_that_may_be_retried() -> None:
    settings = ServiceSettings(database_url="postgresql://nobody:x@127.0.0.1:1/none")
    database = Database(settings.database_for("kit"), "kit")
    with pytest.raises(DatabaseAway, match="try again"):
        async with database.reading():
            raise AssertionError("connected to nothing")
    await database.close()


def test_only_postgresql_urls_are_taken() -> None:
    with pytest.raises(ValueError, match="postgresql://"):
        ServiceSettings(database_url="mysql://x").database_for("kit")

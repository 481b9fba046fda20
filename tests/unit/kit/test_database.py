"""Databases: a transaction commits whole or not at all, and writers queue instead of failing."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from services.kit.database.engine import Database, DatabaseAway, after_commit
from services.kit.runtime.settings import ServiceSettings

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


async def test_room_of_deleted_rows_goes_back_to_the_disk_at_once(settings: ServiceSettings) -> None:
    database = await open_with_table(settings)
    if not database.is_sqlite:
        pytest.skip("PostgreSQL does so by itself")
    async with database.writing() as connection:
        await connection.execute(NUMBERS.insert(), [{"n": n} for n in range(50_000)])
    async with database.writing() as connection:
        await connection.execute(NUMBERS.delete())
    path = Path(database.url.removeprefix("sqlite+aiosqlite:///"))
    files = [path, path.with_name(f"{path.name}-wal")]
    await database.vacuum()
    assert sum(file.stat().st_size for file in files) < 50_000
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


async def test_what_waits_for_the_commit_happens_once_and_only_if_it_comes(settings: ServiceSettings) -> None:
    database = await open_with_table(settings)
    happened: list[int] = []
    async with database.writing() as connection:
        await connection.execute(NUMBERS.insert().values(n=1))
        after_commit(connection, lambda: happened.append(1))
        assert happened == []
    with pytest.raises(RuntimeError):
        async with database.writing() as connection:
            after_commit(connection, lambda: happened.append(2))
            raise RuntimeError
    async with database.writing() as connection:
        await connection.execute(NUMBERS.insert().values(n=3))
    assert happened == [1]
    await database.close()


async def test_a_statement_that_fails_takes_its_transaction_with_it_and_the_connection_goes_on(
    settings: ServiceSettings,
) -> None:
    database = await open_with_table(settings)
    for _ in range(3):
        with pytest.raises(sa.exc.IntegrityError):
            async with database.writing() as connection:
                await connection.execute(NUMBERS.insert(), [{"n": 1}, {"n": 2}])
                await connection.execute(NUMBERS.insert().values(n=1))
    assert await count(database) == 0
    async with database.writing() as connection:
        changed = await connection.execute(NUMBERS.insert().values(n=1))
        assert changed.rowcount == 1
        found = await connection.execute(NUMBERS.update().values(n=7).returning(NUMBERS.c.n))
        assert found.scalars().all() == [7]
    assert await count(database) == 1
    await database.close()


async def test_a_writer_that_is_given_up_leaves_nothing_open(settings: ServiceSettings) -> None:
    """Cancelled anywhere, also within a statement: nothing of it stays, and the next writer is not kept waiting."""
    database = await open_with_table(settings)
    begun = asyncio.Event()

    async def write() -> None:
        async with database.writing() as connection:
            for n in range(10_000):
                await connection.execute(NUMBERS.insert().values(n=n))
                begun.set()

    for _ in range(5):
        begun.clear()
        writer = asyncio.create_task(write())
        await begun.wait()
        writer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writer
        assert await count(database) == 0
    async with database.writing() as connection:
        await connection.execute(NUMBERS.insert().values(n=1))
    assert await count(database) == 1
    await database.close()


async def test_a_transaction_without_a_statement_is_none(settings: ServiceSettings) -> None:
    database = await open_with_table(settings)
    for _ in range(20):
        async with database.writing():
            pass
        async with database.reading():
            pass
    assert await count(database) == 0
    await database.close()


@pytest.mark.parametrize("rows", [0, 1, 999, 1000, 1001, 2500])
async def test_lists_of_any_length_are_read_whole_or_as_a_stream(settings: ServiceSettings, rows: int) -> None:
    database = await open_with_table(settings)
    async with database.writing() as connection:
        if rows:
            await connection.execute(NUMBERS.insert(), [{"n": n} for n in range(rows)])
    everything = sa.select(NUMBERS.c.n).order_by(NUMBERS.c.n)
    async with database.reading() as connection:
        assert list((await connection.execute(everything)).scalars()) == list(range(rows))
        assert [row.n async for row in await connection.stream(everything)] == list(range(rows))
        result = await connection.stream(everything)  # left in the middle, as a caller who hangs up does
        assert (await result.fetchone() is None) == (rows == 0)
        await result.close()
    async with database.writing() as connection:
        await connection.execute(NUMBERS.delete())
    assert await count(database) == 0
    await database.close()


async def test_reads_one_after_the_other_use_one_connection_so_that_one_cache_fills(tmp_path: Path) -> None:
    """Each connection keeps megabytes of pages: taken in turn, all of them would fill with the same ones."""
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'one.db'}", "one")
    together = asyncio.Barrier(4)

    async def use(*, wait: bool) -> int:
        async with database.reading() as tx:
            if wait:
                await together.wait()
            return id((await tx.get_raw_connection()).dbapi_connection)

    assert len(set(await asyncio.gather(*(use(wait=True) for _ in range(4))))) == 4
    assert len({await use(wait=False) for _ in range(8)}) == 1
    await database.close()

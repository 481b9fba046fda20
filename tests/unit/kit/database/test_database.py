"""Databases: a transaction commits whole or not at all, and writers queue instead of failing."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from services.kit.database import sqlite as sqlite_connections
from services.kit.database.engine import Database, DatabaseAway
from services.kit.runtime.settings import ServiceSettings

NUMBERS = sa.Table("numbers", sa.MetaData(), sa.Column("n", sa.Integer, primary_key=True))
ALL_NUMBERS = sa.select(NUMBERS.c.n).order_by(NUMBERS.c.n)


@pytest.fixture
async def database(settings: ServiceSettings) -> AsyncIterator[Database]:
    """One of each kind."""
    opened = Database(settings.database_for("kit"), "kit")
    await opened.change_tables(NUMBERS.metadata.create_all)
    yield opened
    await opened.close()


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(f"sqlite:///{tmp_path / 'numbers.db'}", "numbers")
    await opened.change_tables(NUMBERS.metadata.create_all)
    yield opened
    await opened.close()


async def count(database: Database) -> int:
    async with database.reading() as tx:
        return int((await tx.execute(sa.select(sa.func.count()).select_from(NUMBERS))).scalar_one())


async def add(database: Database, *numbers: int) -> None:
    async with database.writing() as tx:
        await tx.execute(NUMBERS.insert(), [{"n": n} for n in numbers])


async def test_a_block_that_raises_changes_nothing(database: Database) -> None:
    with pytest.raises(RuntimeError):
        async with database.writing() as tx:
            await tx.execute(NUMBERS.insert().values(n=1))
            raise RuntimeError
    assert await count(database) == 0


async def test_vacuum_returns_space_of_deleted_rows_to_the_disk(sqlite: Database) -> None:
    await add(sqlite, *range(50_000))
    async with sqlite.writing() as tx:
        await tx.execute(NUMBERS.delete())
    path = Path(sqlite.url.removeprefix("sqlite:///"))
    files = [path, path.with_name(f"{path.name}-wal")]
    await sqlite.vacuum()
    assert sum(file.stat().st_size for file in files) < 50_000


async def test_fifty_writers_at_once_all_succeed_while_readers_read(database: Database) -> None:
    await asyncio.gather(*(add(database, n) for n in range(50)), *(count(database) for _ in range(20)))
    assert await count(database) == 50


async def test_an_unreachable_server_is_an_error_that_may_be_retried() -> None:
    settings = ServiceSettings(database_url="postgresql://user:x@127.0.0.1:1/none")
    database = Database(settings.database_for("kit"), "kit")
    with pytest.raises(DatabaseAway, match="try again"):
        async with database.reading():
            raise AssertionError("connected to nothing")
    await database.close()


def test_only_postgresql_urls_are_taken() -> None:
    with pytest.raises(ValueError, match="postgresql://"):
        ServiceSettings(database_url="mysql://x").database_for("kit")


async def test_after_commit_runs_once_and_only_if_the_commit_succeeds(database: Database) -> None:
    happened: list[int] = []
    async with database.writing() as tx:
        await tx.execute(NUMBERS.insert().values(n=1))
        tx.after_commit(lambda: happened.append(1))
        assert happened == []
    with pytest.raises(RuntimeError):
        async with database.writing() as tx:
            tx.after_commit(lambda: happened.append(2))
            raise RuntimeError
    await add(database, 3)
    assert happened == [1]


@pytest.mark.parametrize("offload", [False, True])
async def test_a_failed_statement_rolls_back_and_the_connection_goes_on(database: Database, offload: bool) -> None:
    for _ in range(3):
        with pytest.raises(sa.exc.IntegrityError):
            async with database.writing(offload=offload) as tx:
                await tx.execute(NUMBERS.insert(), [{"n": 1}, {"n": 2}])
                await tx.execute(NUMBERS.insert().values(n=1))
    assert await count(database) == 0
    async with database.writing(offload=offload) as tx:
        assert (await tx.execute(NUMBERS.insert().values(n=1))).rowcount == 1
        changed = await tx.execute(NUMBERS.update().values(n=7).returning(NUMBERS.c.n))
        assert changed.scalars().all() == [7]
    assert await count(database) == 1


@pytest.mark.parametrize("offload", [False, True])
async def test_a_cancelled_writer_leaves_nothing_open(database: Database, offload: bool) -> None:
    """Cancelled anywhere, also within a statement: its changes are gone and the next writer does not wait."""
    begun = asyncio.Event()

    async def write() -> None:
        async with database.writing(offload=offload) as tx:
            for n in range(10_000):
                await tx.execute(NUMBERS.insert().values(n=n))
                begun.set()
                await asyncio.sleep(0)

    for _ in range(5):
        begun.clear()
        writer = asyncio.create_task(write())
        await begun.wait()
        writer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writer
        assert await count(database) == 0
    await add(database, 1)
    assert await count(database) == 1


async def test_a_writer_cancelled_while_it_waits_leaves_nothing_open(sqlite: Database) -> None:
    for steps in range(12):
        async with sqlite.writing():
            waiting = asyncio.create_task(add(sqlite, 1))
            await asyncio.sleep(0)
        for _ in range(steps):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with sqlite.writing() as tx:
            await tx.execute(NUMBERS.delete())
    assert await count(sqlite) == 0


async def test_a_transaction_without_a_statement_does_nothing(database: Database) -> None:
    for _ in range(20):
        async with database.writing():
            pass
        async with database.reading():
            pass
    assert await count(database) == 0


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 999, 1000, 1001, 2500])
async def test_lists_of_any_length_are_read_whole_or_in_partitions(
    database: Database, rows: int, offload: bool
) -> None:
    if rows:
        await add(database, *range(rows))
    async with database.reading(offload=offload, snapshot=True) as tx:
        assert list((await tx.execute(ALL_NUMBERS)).scalars()) == list(range(rows))
        parts = [[row.n for row in part] async for part in tx.partitions(ALL_NUMBERS, 1000)]
        assert [n for part in parts for n in part] == list(range(rows))
        assert all(len(part) <= 1000 for part in parts)
        async for _ in tx.partitions(ALL_NUMBERS, 10):
            break
    async with database.writing() as tx:
        await tx.execute(NUMBERS.delete())
    assert await count(database) == 0


async def test_partitions_see_what_their_own_transaction_wrote(database: Database) -> None:
    async with database.writing() as tx:
        await tx.execute(NUMBERS.insert(), [{"n": 1}, {"n": 2}])
        assert [[row.n for row in part] async for part in tx.partitions(ALL_NUMBERS, 10)] == [[1, 2]]


async def test_a_snapshot_does_not_change_while_others_write(database: Database) -> None:
    async with database.reading(snapshot=True) as tx:
        assert (await tx.execute(ALL_NUMBERS)).all() == []
        await add(database, 1)
        assert (await tx.execute(ALL_NUMBERS)).all() == []
    assert await count(database) == 1


async def test_consecutive_reads_share_one_connection_and_its_cache(sqlite: Database) -> None:
    """Each connection caches megabytes of pages: taken in turn, all of them would cache the same ones."""
    together = asyncio.Barrier(4)

    async def use(*, wait: bool) -> int:
        async with sqlite.reading() as tx:
            if wait:
                await together.wait()
            return await tx.run_sync(lambda connection: id(connection.connection.driver_connection))

    assert len(set(await asyncio.gather(*(use(wait=True) for _ in range(4))))) == 4
    assert len({await use(wait=False) for _ in range(8)}) == 1


@pytest.mark.parametrize("offload", [False, True])
async def test_statements_leave_the_event_loop_only_with_offload(sqlite: Database, offload: bool) -> None:
    threads: list[int] = []
    sa.event.listen(sqlite.engine, "before_cursor_execute", lambda *_: threads.append(threading.get_ident()))
    async with sqlite.writing(offload=offload) as tx:
        await tx.execute(NUMBERS.insert().values(n=1))
        assert (await tx.execute(ALL_NUMBERS)).scalars().all() == [1]
    assert [thread == threading.get_ident() for thread in threads] == [not offload] * 2


async def test_transactions_beyond_the_limit_wait_for_a_connection(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connections, "ACQUIRE_TIMEOUT_SECONDS", 0.05)
    leave = asyncio.Event()
    inside = asyncio.Barrier(sqlite_connections.MAX_CONNECTIONS + 1)

    async def read() -> list[Any]:
        async with sqlite.reading() as tx:
            await inside.wait()
            await leave.wait()
            return list((await tx.execute(ALL_NUMBERS)).all())

    readers = [asyncio.create_task(read()) for _ in range(sqlite_connections.MAX_CONNECTIONS)]
    await inside.wait()
    with pytest.raises(DatabaseAway):
        await count(sqlite)
    leave.set()
    assert await asyncio.gather(*readers) == [[]] * sqlite_connections.MAX_CONNECTIONS
    assert await count(sqlite) == 0


async def test_a_failed_commit_is_an_error_and_leaves_nothing(sqlite: Database) -> None:
    async with sqlite.writing() as tx:
        await tx.execute(sa.text("CREATE TABLE kinds (id INTEGER PRIMARY KEY)"))
        owner = "kind INTEGER REFERENCES kinds (id) DEFERRABLE INITIALLY DEFERRED"
        await tx.execute(sa.text(f"CREATE TABLE parts ({owner})"))
    for _ in range(2):
        happened: list[int] = []
        with pytest.raises(sa.exc.IntegrityError, match="FOREIGN KEY"):
            async with sqlite.writing() as tx:
                tx.after_commit(lambda: happened.append(1))  # noqa: B023
                await tx.execute(sa.text("INSERT INTO parts VALUES (7)"))
        assert not happened
    async with sqlite.reading() as tx:
        assert (await tx.execute(sa.text("SELECT * FROM parts"))).all() == []


async def test_a_locked_or_missing_table_may_be_retried(sqlite: Database) -> None:
    with pytest.raises(DatabaseAway):
        async with sqlite.reading() as tx:
            await tx.execute(sa.text("SELECT * FROM nothing_like_it"))


async def test_a_connection_that_cannot_roll_back_is_discarded_and_logged(sqlite: Database) -> None:
    def close_driver(connection: sa.Connection) -> None:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.close()

    with capture_logs() as logs, pytest.raises(RuntimeError):
        async with sqlite.writing() as tx:
            await tx.run_sync(close_driver)
            raise RuntimeError
    assert [entry["event"] for entry in logs] == ["SQLite connection discarded: rollback failed"]
    await add(sqlite, 1)
    assert await count(sqlite) == 1

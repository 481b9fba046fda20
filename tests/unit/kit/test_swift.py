"""Transactions on SQLite past most of SQLAlchemy: what is stored and found is what SQLAlchemy stores and finds."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from coterie.records.base import OpenEnum
from services.kit.database import sqlite
from services.kit.database.engine import Database, DatabaseAway
from services.kit.database.rows import EnumColumn, insert_rows, upsert
from services.kit.swift import SwiftTx


class Colour(OpenEnum):
    RED = "red"
    BLUE = "blue"


THINGS = sa.Table(
    "things",
    sa.MetaData(),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(20), nullable=False, unique=True),
    sa.Column("colour", EnumColumn(Colour, 8), nullable=False, default=Colour.RED),
    sa.Column("said", sa.JSON, nullable=False, default=dict),
    sa.Column("heavy", sa.Boolean, nullable=False, default=False),
    sa.Column("weight", sa.Double, nullable=False, server_default="1.5"),
    sa.Column("bytes", sa.LargeBinary, nullable=False, default=b"\x00"),
)
C = THINGS.c
ROWS: list[dict[str, Any]] = [
    {"name": "a", "colour": Colour.BLUE, "said": {"x": [1, 2.5, None]}, "heavy": True, "weight": 0.1, "bytes": b"ab"},
    {"name": "b", "colour": Colour.RED, "said": {}, "heavy": False, "weight": -0.0, "bytes": b""},
    {"name": "ü", "colour": Colour.BLUE, "said": {"y": "z"}, "heavy": True, "weight": 1e300, "bytes": b"\x00"},
]
_NAMED = sa.select(THINGS).where(C.name == sa.bindparam("wanted"))
_SOME = sa.select(C.name, C.said).where(C.name.in_(sa.bindparam("names", expanding=True))).order_by(C.name)
_LABELLED = (
    sa.select(sa.func.count().label("many"), sa.func.max(C.weight), C.colour).group_by(C.colour).order_by("many")
)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    found = Database(f"sqlite+aiosqlite:///{tmp_path / 'things.db'}", "things")
    async with found.engine.begin() as connection:
        await connection.run_sync(THINGS.metadata.create_all)
    yield found
    await found.close()


async def both(database: Database, statement: Any, values: dict[str, Any] | None = None) -> list[Any]:
    """The rows a statement finds each of ten times, which SQLAlchemy alone finds as well."""
    async with database.engine.connect() as connection:
        right = [tuple(row) for row in await connection.execute(statement, values)]
    for _ in range(10):
        async with database.reading() as tx:
            assert isinstance(tx, SwiftTx)
            found = (await tx.execute(statement, values)).all()
            assert [tuple(row) for row in found] == right
    return list(found)


async def test_what_is_stored_once_or_again_is_found_as_sqlalchemy_finds_it(database: Database) -> None:
    add = THINGS.insert()
    async with database.writing() as tx:
        for row in ROWS:
            await tx.execute(add, row)
    assert [row[1:] for row in await both(database, sa.select(THINGS))] == [tuple(row.values()) for row in ROWS]
    (found,) = await both(database, _NAMED, {"wanted": "a"})
    assert (found.colour, found.said, found.heavy) == (Colour.BLUE, {"x": [1, 2.5, None]}, True)
    await both(database, _SOME, {"names": ["a", "ü", "no such"]})
    for names in ([], ["b"], ["a", "b"], [], ["ü", "a"], ["b"]):
        found = await both(database, _SOME, {"names": names})
        assert [row.name for row in found] == sorted(names)
    assert [row.many for row in await both(database, _LABELLED)] == [1, 2]
    await both(database, sa.text("SELECT name, heavy FROM things WHERE weight < :most"), {"most": 1.0})


async def test_columns_that_are_given_no_value_have_their_defaults(database: Database) -> None:
    async with database.writing() as tx:
        await tx.execute(THINGS.insert(), [{"name": "a"}, {"name": "b"}])
        await tx.execute(THINGS.insert().values(name="c"))
        plain = THINGS.insert().values(said={})
        for name in "defg":
            await tx.execute(plain, {"name": name})
    for row in await both(database, sa.select(THINGS)):
        assert row[2:] == (Colour.RED, {}, False, 1.5, b"\x00")
    said: list[Any] = [row.said for row in await both(database, sa.select(THINGS))]
    said[0]["mine"] = 1  # nobody else's
    assert all(row.said == {} for row in await both(database, sa.select(THINGS)))


async def test_the_same_statement_takes_other_values_and_other_columns_each_time(database: Database) -> None:
    change = THINGS.update().where(C.name == sa.bindparam("wanted"))
    async with database.writing() as tx:
        await tx.execute(THINGS.insert(), ROWS)
        for weight in range(5):
            changed = await tx.execute(change.values(weight=weight), {"wanted": "a"})
            assert changed.rowcount == 1
        for _ in range(3):
            assert (await tx.execute(change, {"wanted": "b", "weight": 7.0})).rowcount == 1
            assert (await tx.execute(change, {"wanted": "b", "said": {"k": 1}, "heavy": True})).rowcount == 1
            assert (await tx.execute(change, {"wanted": "nobody", "weight": 7.0})).rowcount == 0
    found = {row.name: row for row in await both(database, sa.select(THINGS))}
    assert (found["a"].weight, found["b"].weight, found["b"].said, found["b"].heavy) == (4.0, 7.0, {"k": 1}, True)


async def test_what_exists_is_updated_and_what_is_deleted_comes_back(database: Database) -> None:
    gone = THINGS.delete().where(C.name == sa.bindparam("wanted")).returning(C.colour, C.said)
    async with database.writing() as tx:
        for _ in range(3):
            await upsert(tx, THINGS, ROWS, ["name"], only=["said"])
        for row in ROWS:
            assert (await tx.execute(gone, {"wanted": row["name"]})).all() == [(row["colour"], row["said"])]
        number = (await tx.execute(THINGS.insert().values(name="z").returning(C.number))).scalar_one()
        await insert_rows(tx, [C.name, C.heavy, C.colour, C.said, C.bytes], [("y", 1, "blue", "{}", b"")])
    assert [row.name for row in await both(database, sa.select(THINGS).where(C.number >= number))] == ["z", "y"]


async def test_a_refused_statement_is_sqlalchemys_error_and_leaves_nothing(database: Database) -> None:
    add = THINGS.insert()
    for _ in range(10):
        with pytest.raises(sa.exc.IntegrityError, match="UNIQUE"):
            async with database.writing() as tx:
                await tx.execute(add, ROWS[0])
                await tx.execute(add, ROWS[0])
    assert await both(database, sa.select(THINGS)) == []
    with pytest.raises(DatabaseAway):
        async with database.reading() as tx:
            await tx.execute(sa.text("SELECT * FROM nothing_like_it"))


async def test_a_commit_that_fails_is_an_error_too_and_leaves_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch, pytest.raises(DatabaseAway):
        patch.setattr(sqlite.ShortConnection, "commit", full)
        async with database.writing() as tx:
            await tx.execute(THINGS.insert(), ROWS)
    async with database.writing() as tx:
        await tx.execute(sa.text("CREATE TABLE kinds (id INTEGER PRIMARY KEY)"))
        owner = "kind INTEGER REFERENCES kinds (id) DEFERRABLE INITIALLY DEFERRED"
        await tx.execute(sa.text(f"CREATE TABLE parts ({owner})"))
    with pytest.raises(sa.exc.IntegrityError, match="FOREIGN KEY"):
        async with database.writing() as tx:
            await tx.execute(sa.text("INSERT INTO parts VALUES (7)"))
    assert await both(database, sa.select(THINGS)) == []
    assert await both(database, sa.text("SELECT * FROM parts")) == []


async def test_a_stream_sees_what_its_own_transaction_wrote(database: Database) -> None:
    async with database.writing() as tx:
        await tx.execute(THINGS.insert(), ROWS)
        assert [row.name async for row in await tx.stream(sa.select(C.name))] == ["a", "b", "ü"]
        await tx.execute(THINGS.delete().where(C.name == "b"))
    assert [row.name for row in await both(database, sa.select(THINGS))] == ["a", "ü"]
    with pytest.raises(RuntimeError):
        async with database.writing() as tx:
            await (await tx.stream(sa.select(C.name))).fetchone()
            await tx.execute(THINGS.delete())
            raise RuntimeError
    assert len(await both(database, sa.select(THINGS))) == 2


async def test_quick_statements_are_run_on_the_spot_and_slow_ones_by_the_thread(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock of its own: a statement is as slow as `seconds` says."""
    here, seconds, clock = threading.get_ident(), [0.0], [0.0]
    places: list[bool] = []
    run = sqlite.ShortConnection._run

    def noted(self: sqlite.ShortConnection, *arguments: Any) -> Any:
        places.append(threading.get_ident() == here)
        return run(self, *arguments)

    def tick() -> float:
        clock[0] += seconds[0]
        return clock[0]

    monkeypatch.setattr(sqlite.ShortConnection, "_run", noted)
    monkeypatch.setattr(sqlite, "perf_counter", tick)

    async def read() -> bool:
        async with database.reading() as tx:
            await tx.execute(_NAMED, {"wanted": "a"})
        return places[-1]

    async def write() -> list[bool]:
        async with database.writing() as tx:
            for _ in range(2):
                await tx.execute(_NAMED, {"wanted": "a"})
        return places[-2:]

    assert [await read() for _ in range(10)] == [False] * sqlite.QUICK_TIMES + [True] * 2
    assert await write() == [False, True]  # a BEGIN IMMEDIATE may wait for another process
    seconds[0] = 1.0
    assert await read()  # nobody could know
    seconds[0] = 0.0
    assert [await read() for _ in range(sqlite.SLOW_TIMES + 1)] == [False] * sqlite.SLOW_TIMES + [True]


async def test_transactions_beyond_the_room_wait_for_it(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.kit.database.engine.ROOM_SECONDS", 0.05)
    leave = asyncio.Event()

    async def read() -> int:
        async with database.reading() as tx:
            await leave.wait()
            return int((await tx.execute(sa.select(sa.func.count()).select_from(THINGS))).scalar_one())

    readers = [asyncio.create_task(read()) for _ in range(16)]
    await asyncio.sleep(0)
    with pytest.raises(DatabaseAway):
        await asyncio.gather(*(asyncio.create_task(read()) for _ in range(1)))
    leave.set()
    assert await asyncio.gather(*readers) == [0] * 16
    assert await read() == 0

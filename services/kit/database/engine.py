"""Databases: one per service, reached through transactions that begin, commit and roll back in exactly one place.

SQLite is opened in WAL mode with full synchronisation. Writing transactions begin IMMEDIATE and queue in this process,
so they never meet `database is locked`; reading ones see a snapshot and never wait. On PostgreSQL each service has a
schema of its own in the one database, and the same two kinds of transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import alembic.command
import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from services.kit.database import sqlite
from services.kit.errors import Unavailable
from services.kit.swift import Statements, SwiftTx

_SQLITE_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA busy_timeout=10000",
    "PRAGMA cache_size=-8000",
)
# SQLSTATE of a PostgreSQL that is lost, full up, stopping, crashed or starting: connecting again may succeed.
_AWAY_STATES = ("08", "53", "57P01", "57P02", "57P03")
MOST_CONNECTIONS = 16
"""Transactions on SQLite at a time."""
ROOM_SECONDS = 30.0
"""For so long a transaction waits until there is room for it."""
_MIGRATION_LOCK = 0x636F746572  # "coter": PostgreSQL advisory lock held while tables change


class DatabaseAway(Unavailable):
    """The database does not answer."""


class Database:
    """A service's own database.

    `url` is an SQLAlchemy async URL; `schema` names the service and, on PostgreSQL, its schema.
    """

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema
        self.is_sqlite = url.startswith("sqlite")
        self._writer = asyncio.Lock()
        self.engine = self._make_engine()
        self._statements = Statements(self.engine.dialect)
        self._room = asyncio.Semaphore(MOST_CONNECTIONS)
        self._idle: list[_Open] = []

    def _make_engine(self) -> AsyncEngine:
        if not self.is_sqlite:
            settings = {"search_path": self.schema}
            return create_async_engine(
                self.url,
                pool_size=8,
                max_overflow=8,
                pool_pre_ping=True,
                pool_timeout=10,
                connect_args={"server_settings": settings, "timeout": 5, "command_timeout": 60},
            )
        Path(self.url.removeprefix("sqlite+aiosqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        short = {"async_creator_fn": partial(sqlite.connect, pace=sqlite.Pace())}
        engine = create_async_engine(self.url, pool_size=MOST_CONNECTIONS, max_overflow=4, connect_args=short)

        @sa.event.listens_for(engine.sync_engine, "connect")
        def prepare(connection: Any, _: object) -> None:
            connection.isolation_level = None  # the driver must not begin transactions behind our back
            cursor = connection.cursor()
            for pragma in _SQLITE_PRAGMAS:
                cursor.execute(pragma)
            cursor.close()

        @sa.event.listens_for(engine.sync_engine, "begin")
        def begin(connection: sa.Connection) -> None:
            driver: Any = connection.connection.driver_connection
            driver.begin("BEGIN")

        return engine

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that may write: commits when the block ends, rolls back when it raises."""
        with _translated():
            if not self.is_sqlite:
                async with self.engine.begin() as connection:
                    yield connection
                _run_later(connection)
                return
            async with self._writer, self._swift("BEGIN IMMEDIATE") as tx:
                yield tx
                await tx.commit()
            _run_later(tx)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads."""
        with _translated():
            if not self.is_sqlite:
                async with self.engine.connect() as connection:
                    yield connection
                return
            async with self._swift("BEGIN") as tx:
                yield tx

    @asynccontextmanager
    async def _swift(self, begin: str) -> AsyncIterator[AsyncConnection]:
        """A transaction on one of SQLite's connections, rolled back unless it was committed.

        The connection used last is used next: each keeps up to 8 MB of pages, and in turn all of them would.
        """
        if self._room.locked():
            async with asyncio.timeout(ROOM_SECONDS):
                await self._room.acquire()
        else:
            await self._room.acquire()
        open_: _Open | None = None
        try:
            open_ = self._idle.pop() if self._idle else await self._connect()
            open_.driver.begin(begin)
            yield cast("AsyncConnection", SwiftTx(open_.connection, open_.driver, self._statements))
        finally:
            if open_ is None:
                self._room.release()
            elif open_.is_clean:
                self._idle.append(open_)
                self._room.release()
            else:  # also when its caller is gone: nobody else gets a connection in the middle of something
                await asyncio.shield(asyncio.ensure_future(self._clean(open_)))

    async def _connect(self) -> _Open:
        connection = await self.engine.connect()
        return _Open(
            connection, cast("sqlite.ShortConnection", (await connection.get_raw_connection()).driver_connection)
        )

    async def _clean(self, open_: _Open) -> None:
        """Ends what a connection is in, and takes it back; one that cannot is made anew when it is needed."""
        try:
            if open_.connection.in_transaction():
                await open_.connection.rollback()
            await open_.driver.rollback()
            self._idle.append(open_)
        except Exception:
            await open_.connection.invalidate()
            await open_.connection.close()
        finally:
            self._room.release()

    async def migrate(self, package: str) -> None:
        """Brings the tables to the newest version of `package`'s migrations, under a lock against other processes."""
        with _translated():
            async with self._migration_lock(), self.engine.connect() as connection:
                await connection.run_sync(_upgrade, package, None if self.is_sqlite else self.schema)
                await connection.commit()

    @asynccontextmanager
    async def _migration_lock(self) -> AsyncIterator[None]:
        if self.is_sqlite:
            path = Path(self.url.removeprefix("sqlite+aiosqlite:///") + ".lock")
            file = await asyncio.to_thread(_locked_file, path)
            try:
                yield
            finally:
                file.close()  # closing gives the lock back
            return
        async with self.engine.connect() as connection:
            await connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": _MIGRATION_LOCK})
            try:
                # A service with a database user of its own owns its schema and may make no other, not even this again.
                there = await connection.execute(sa.text("SELECT to_regnamespace(:name)"), {"name": self.schema})
                if there.scalar_one() is None:
                    await connection.execute(sa.schema.CreateSchema(self.schema, if_not_exists=True))
                await connection.commit()
                yield
            finally:
                await connection.execute(sa.text("SELECT pg_advisory_unlock(:key)"), {"key": _MIGRATION_LOCK})
                await connection.commit()

    async def vacuum(self) -> None:
        """Gives the room of deleted rows back to the disk; PostgreSQL does so by itself."""
        if self.is_sqlite:
            with _translated():
                async with self._writer:
                    await asyncio.to_thread(_vacuum, self.url.removeprefix("sqlite+aiosqlite:///"))

    async def close(self) -> None:
        """Closes every connection."""
        while self._idle:
            await self._idle.pop().connection.close()
        await self.engine.dispose()


class _Open(NamedTuple):
    """An open connection to SQLite, as SQLAlchemy knows it and as the driver does."""

    connection: AsyncConnection
    driver: sqlite.ShortConnection

    @property
    def is_clean(self) -> bool:
        """Whether nothing is under way on it; what only read is forgotten on the spot."""
        return not self.connection.in_transaction() and self.driver.forgets()


_LATER: WeakKeyDictionary[AsyncConnection, list[Callable[[], None]]] = WeakKeyDictionary()


def after_commit(tx: AsyncConnection, action: Callable[[], None]) -> None:
    """Does `action` once the transaction `tx` of `writing` has committed; never, if it does not."""
    _LATER.setdefault(tx, []).append(action)


def _run_later(connection: AsyncConnection) -> None:
    for action in _LATER.pop(connection, ()):
        action()


def _locked_file(path: Path) -> IO[str]:
    file = path.open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _vacuum(path: str) -> None:
    with contextlib.closing(sqlite3.connect(path, timeout=10.0, isolation_level=None)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # or the smaller file waits in the log for the next one


def migrations_of(package: str) -> Config:
    """Where a service's migrations are, for alembic."""
    config = Config()
    config.set_main_option("script_location", f"{package}:migrations")
    config.set_main_option("path_separator", "os")
    return config


def _upgrade(connection: sa.Connection, package: str, schema: str | None) -> None:
    config = migrations_of(package)
    config.attributes["connection"] = connection
    config.attributes["schema"] = schema
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    there = MigrationContext.configure(connection, opts={"version_table_schema": schema}).get_current_heads()
    if newer := set(there) - known:
        raise ValueError(
            f"the database of {package} is of a newer version (revision {', '.join(sorted(newer))}) than this code; "
            "it was left unchanged: install the newer version, or restore a back-up made before the upgrade"
        )
    alembic.command.upgrade(config, "head")


@contextmanager
def _translated() -> Iterator[None]:
    """Turns "the database is away" into an error callers may retry; faults of our own SQL stay what they are."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout, OSError) as error:
        raise DatabaseAway("the database does not answer; try again in a moment") from error
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None) or ""
        if error.connection_invalidated or state.startswith(_AWAY_STATES):
            raise DatabaseAway("the database connection was lost; try again in a moment") from error
        raise

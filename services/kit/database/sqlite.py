"""Connections to one SQLite file, and the transactions on them.

SQLAlchemy's synchronous engine runs every statement. Statements run on the event loop's thread: a statement of a
request takes tens of microseconds, less than handing it to another thread and back. Whatever may wait for another
process or for the disk runs on a thread: opening a connection, waiting for a writer in another process, COMMIT,
ROLLBACK of a writer, and every statement of a transaction with `offload`.
"""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from services.kit.database.transactions import Result, Row, Transaction, Values, translated_errors
from services.kit.observability.logs import get_logger

T = TypeVar("T")
MAX_CONNECTIONS = 16
"""Transactions at a time, and threads for them."""
ACQUIRE_TIMEOUT_SECONDS = 30.0
"""How long a transaction waits for a connection."""
_BUSY_TIMEOUT = "PRAGMA busy_timeout=10000"
_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    _BUSY_TIMEOUT,
    "PRAGMA cache_size=-8000",
)
_log = get_logger()


class SqliteConnections:
    """The open connections of one database.

    The connection used last is used next: each caches up to 8 MB of pages, and taken in turn all of them would.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(path)),
            poolclass=NullPool,
            connect_args={"check_same_thread": False},  # one thread at a time; `_Session` sees to it
        )
        sa.event.listen(self.engine, "connect", _prepare)
        self._threads = ThreadPoolExecutor(MAX_CONNECTIONS, thread_name_prefix=f"sqlite-{path.stem}")
        self._writer = asyncio.Lock()
        self._available = asyncio.Semaphore(MAX_CONNECTIONS)
        self._idle: list[_Session] = []

    @asynccontextmanager
    async def reading(self, *, offload: bool, snapshot: bool) -> AsyncIterator[Transaction]:
        """Open a transaction on a snapshot of the database, with or without `snapshot`; it never waits for writers."""
        with translated_errors():
            async with self._session() as session:
                session.begin_reading(offload=offload)
                yield SqliteTransaction(session)

    @asynccontextmanager
    async def writing(self, *, offload: bool) -> AsyncIterator[Transaction]:
        """Open the one transaction that may write; commit it unless the block raises."""
        with translated_errors():
            async with self._writer, self._session() as session:
                await session.begin_writing(offload=offload)
                transaction = SqliteTransaction(session)
                yield transaction
                await session.in_thread(session.connection.commit)
            transaction.run_actions()

    async def change_tables(self, change: Callable[[sa.Connection], None]) -> None:
        with translated_errors():
            await self._exclusively(partial(self._change_tables, change))

    def _change_tables(self, change: Callable[[sa.Connection], None]) -> None:
        with self.path.with_name(f"{self.path.name}.lock").open("w") as lock:  # closing it releases the lock
            fcntl.flock(lock, fcntl.LOCK_EX)
            with self.engine.begin() as connection:
                connection.exec_driver_sql("BEGIN")
                change(connection)

    async def vacuum(self) -> None:
        with translated_errors():
            await self._exclusively(self._vacuum)

    def _vacuum(self) -> None:
        with closing(sqlite3.connect(self.path, timeout=10.0, isolation_level=None)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # or the WAL keeps the pages until the next one

    async def _exclusively(self, function: Callable[[], None]) -> None:
        async with self._writer:
            await asyncio.get_running_loop().run_in_executor(self._threads, function)

    async def close(self) -> None:
        """Close every idle connection."""
        while self._idle:
            self._idle.pop().connection.close()
        self.engine.dispose()
        self._threads.shutdown(wait=False)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[_Session]:
        await self._acquire()
        session = self._idle.pop() if self._idle else _Session(self.engine, self._threads)
        try:
            if not session.is_open:
                await session.in_thread(session.open)
            yield session
        finally:
            if session.end():
                self._idle.append(session)
                self._available.release()
            else:  # shielded: a cancelled caller must not leave the connection inside a transaction
                await asyncio.shield(asyncio.ensure_future(self._roll_back(session)))

    async def _acquire(self) -> None:
        if not self._available.locked():  # a timer costs as much as a short statement
            await self._available.acquire()
            return
        async with asyncio.timeout(ACQUIRE_TIMEOUT_SECONDS):
            await self._available.acquire()

    async def _roll_back(self, session: _Session) -> None:
        try:
            if await session.roll_back():
                self._idle.append(session)
        except Exception as error:
            _log.warning("SQLite connection discarded: rollback failed", path=str(self.path), error=str(error))
            session.discard()
        finally:
            self._available.release()


class _Session:
    """One connection, used by one thread at a time."""

    connection: sa.Connection
    _driver: sqlite3.Connection

    def __init__(self, engine: sa.Engine, threads: ThreadPoolExecutor) -> None:
        self._engine, self._threads = engine, threads
        self._running: Future[Any] | None = None
        self._is_reading = self._offload = False
        self.is_open = False

    def open(self) -> None:
        self.connection = self._engine.connect()
        self._driver = cast("sqlite3.Connection", self.connection.connection.driver_connection)
        self.is_open = True

    def begin_reading(self, *, offload: bool) -> None:
        """Begin a transaction that only reads; with `offload` its statements run on a thread."""
        self._is_reading, self._offload = True, offload
        self.connection.begin()
        self._driver.execute("BEGIN")

    async def begin_writing(self, *, offload: bool) -> None:
        """Begin a transaction that may write; wait on a thread if another process is writing."""
        self._is_reading, self._offload = False, offload
        self.connection.begin()
        self._driver.execute("PRAGMA busy_timeout=0")
        with suppress(sqlite3.OperationalError):
            self._driver.execute("BEGIN IMMEDIATE")
        self._driver.execute(_BUSY_TIMEOUT)
        if not self._driver.in_transaction:
            await self.in_thread(self._driver.execute, "BEGIN IMMEDIATE")

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function of the connection where the transaction's statements run."""
        return await self.in_thread(function, *arguments) if self._offload else function(*arguments)

    async def execute(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run a statement; on a thread, together with the reading of its rows."""
        if not self._offload:
            return function(*arguments)
        return await self.in_thread(_read, function, *arguments)

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function of the connection on a thread, where it goes on if the caller is cancelled."""
        self._running = self._threads.submit(function, *arguments)
        result: T = await asyncio.wrap_future(self._running)
        self._running = None
        return result

    def end(self) -> bool:
        """End a transaction that read or has committed; False for any other, which needs `roll_back`."""
        if self._running is not None or not self.is_open:
            return False
        if self._is_reading:
            with suppress(sa.exc.DBAPIError):  # `roll_back` tries again and reports it
                self.connection.rollback()
        return not (self.connection.in_transaction() or self._driver.in_transaction)

    async def roll_back(self) -> bool:
        """Wait for what still runs, then roll back; False if the connection was never opened."""
        if self._running is not None:
            await asyncio.gather(asyncio.wrap_future(self._running), return_exceptions=True)
        if self.is_open:
            await self.in_thread(self._roll_back)
        return self.is_open

    def _roll_back(self) -> None:
        self.connection.rollback()
        if self._driver.in_transaction:  # a COMMIT that failed ends the transaction for SQLAlchemy alone
            self._driver.rollback()

    def discard(self) -> None:
        """Close the connection whatever state it is in."""
        self.connection.invalidate()
        self.connection.close()


class SqliteTransaction(Transaction):
    """A transaction on a synchronous connection to SQLite."""

    def __init__(self, session: _Session) -> None:
        super().__init__(session.connection.dialect)
        self._session, self._connection = session, session.connection

    async def execute(self, statement: sa.Executable, values: Values = None) -> Result:
        return await self._session.execute(self._connection.execute, statement, values)

    async def exec_driver_sql(self, text: str, values: Any = None) -> Result:
        return await self._session.execute(self._connection.exec_driver_sql, text, values)

    async def partitions(self, query: sa.Select[Any], size: int) -> AsyncIterator[Sequence[Row]]:
        result = await self._session.run(self._connection.execute, query)
        try:
            while rows := await self._session.run(result.fetchmany, size):
                yield rows
        finally:
            result.close()

    async def run_sync(self, function: Callable[[sa.Connection], T]) -> T:
        return await self._session.run(function, self._connection)


def _read(function: Callable[..., Result], *arguments: Any) -> Result:
    result = function(*arguments)
    return cast("Result", result.freeze()()) if result.returns_rows else result


def _prepare(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # the driver must not begin transactions by itself
    for pragma in _PRAGMAS:
        connection.execute(pragma).close()

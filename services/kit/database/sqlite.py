"""Connections to SQLite that go to their thread once a statement, or not at all.

The driver gives a statement four errands to the connection's thread (make a cursor, execute, fetch, close the cursor)
and the BEGIN before it three more. Each errand wakes a thread and then the event loop, which costs more than most
statements do. Here a statement, its rows and the BEGIN it owes are one errand; and a statement that was quick whenever
it was run lately is run on the spot, where nothing can make it wait: whatever may wait for another process's lock or
for the disk (a BEGIN IMMEDIATE, a COMMIT) is an errand always.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, NamedTuple, Self

import aiosqlite

AT_ONCE = 1000
"""How many rows come with a statement; a longer list is streamed, or fetched in a second errand."""
ON_THE_SPOT = 64
"""How many rows come with a statement that is run on the spot, and for how many parameters it is run."""
QUICK_SECONDS = 0.000_3
"""A statement that takes no longer is quick: an errand would cost as much again."""
QUICK_TIMES = 8
"""So often running a statement must have been quick before it is run on the spot."""
SLOW_TIMES = 100
"""So often a statement that was slow is an errand before it is looked at again."""
PATIENCE_SECONDS = 0.001
"""For so long a connection runs statements on the spot; then others have their turn."""
MOST_STATEMENTS = 2_000
"""How many statements are remembered."""


class _Found(NamedTuple):
    """What a statement left behind."""

    description: Any = None
    rowcount: int = -1
    lastrowid: int | None = None
    rows: Sequence[Any] = ()
    rest: sqlite3.Cursor | None = None
    """Where further rows are, when there are many."""


class Pace:
    """Which statements are quick, by what they took when they were run."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}

    def is_quick(self, sql: str) -> bool:
        """Whether a statement was quick often enough."""
        return self._left.get(sql) == 0

    def took(self, sql: str, seconds: float) -> None:
        """Takes note of how long a statement took; one that was slow is not quick again for a while."""
        left = self._left.get(sql)
        if seconds > QUICK_SECONDS:
            self._left[sql] = SLOW_TIMES
        elif left:
            self._left[sql] = left - 1
        elif left is None:
            if len(self._left) >= MOST_STATEMENTS:
                self._left.clear()
            self._left[sql] = QUICK_TIMES - 1


def _drained(cursor: sqlite3.Cursor) -> list[Any]:
    rows = cursor.fetchall()
    cursor.close()
    return rows


class ShortCursor:
    """A cursor as SQLAlchemy uses one: rows come with the statement, and nothing stays open unless they are many."""

    arraysize = 1

    def __init__(self, connection: ShortConnection) -> None:
        self._connection = connection
        self._found = _Found()

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Self:
        """Runs one statement. A BEGIN waits for the first statement of its transaction and goes with it."""
        if sql.startswith("BEGIN"):
            self._connection.owed = sql
        else:
            self._found = await self._connection.run(sql, parameters, many=False)
        return self

    async def executemany(self, sql: str, parameters: Sequence[Any]) -> Self:
        """Runs one statement for each of many parameters."""
        self._found = await self._connection.run(sql, parameters, many=True)
        return self

    async def fetchall(self) -> Sequence[Any]:
        """The rows that were not fetched yet."""
        (rows, rest), self._found = self._found[3:], self._found._replace(rows=(), rest=None)
        return rows if rest is None else [*rows, *await self._connection.ask(_drained, rest)]

    async def fetchmany(self, size: int | None = None) -> Sequence[Any]:
        """The next rows, at most so many."""
        wanted = size or self.arraysize
        rows, rest = self._found[3:]
        if len(rows) < wanted and rest is not None:
            more = await self._connection.ask(rest.fetchmany, max(wanted, AT_ONCE))
            rows, rest = [*rows, *more], rest if more else None
        self._found = self._found._replace(rows=rows[wanted:], rest=rest)
        return rows[:wanted]

    async def fetchone(self) -> Any:
        """The next row, or None."""
        return next(iter(await self.fetchmany(1)), None)

    async def close(self) -> None:
        """Closes what is open, if many rows were not all fetched."""
        rest, self._found = self._found.rest, self._found._replace(rows=(), rest=None)
        if rest is not None:
            await self._connection.ask(rest.close)

    @property
    def description(self) -> Any:
        """Columns of the rows; None when the statement gives none."""
        return self._found.description

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        return self._found.rowcount

    @property
    def lastrowid(self) -> int | None:
        """The row inserted last."""
        return self._found.lastrowid


class ShortConnection(aiosqlite.Connection):
    """A connection whose statements are one errand each."""

    owed: str = ""
    """A BEGIN that no statement has followed yet."""
    pace: Pace
    """Shared by all connections to a database."""
    _at_work: bool = False
    """Whether a statement was begun of which nobody has heard the end."""
    _reads: bool = False
    """Whether the present transaction began as one that only reads."""
    _patience: float = PATIENCE_SECONDS

    def cursor(self) -> ShortCursor:  # type: ignore[override]  # the driver's own goes to the thread to be made
        """A cursor; costs nothing."""
        return ShortCursor(self)

    async def run(self, sql: str, parameters: Sequence[Any], *, many: bool) -> _Found:
        """Runs a statement, after the BEGIN it owes: on the spot, or on the connection's thread."""
        owed, self.owed = self.owed, ""
        if owed:
            self._reads = owed == "BEGIN"
        found: _Found
        if self._may_be_here(owed, sql, len(parameters) if many else 0):
            found, seconds = self._run(owed, sql, parameters, many, ON_THE_SPOT)
            self._patience -= seconds
            self.pace.took(sql, seconds)
            return found
        self._at_work, self._patience = True, PATIENCE_SECONDS
        try:
            found, seconds = await self._execute(self._run, owed, sql, parameters, many, AT_ONCE)  # type: ignore[no-untyped-call]
        except sqlite3.Error:
            self._at_work = False
            raise
        self._at_work = False
        self.pace.took(sql, seconds)
        return found

    def begin(self, how: str) -> None:
        """Begins a transaction with the next statement, unless one is under way."""
        if not self._conn.in_transaction and not self.owed:
            self.owed = how

    def _may_be_here(self, owed: str, sql: str, rows: int) -> bool:
        waits = self._at_work or owed not in ("", "BEGIN") or not (self._reads or self._conn.in_transaction)
        return not waits and rows <= ON_THE_SPOT and self._patience > 0.0 and self.pace.is_quick(sql)

    def _run(self, owed: str, sql: str, parameters: Sequence[Any], many: bool, most: int) -> tuple[_Found, float]:
        """What a statement finds, at most so many rows of it, and the seconds it took."""
        if owed:
            self._conn.execute(owed)
        began = perf_counter()
        cursor = self._conn.executemany(sql, parameters) if many else self._conn.execute(sql, parameters)
        rows = cursor.fetchmany(most) if cursor.description else ()
        seconds = perf_counter() - began
        found = _Found(cursor.description, cursor.rowcount, cursor.lastrowid, rows)
        if len(rows) == most:
            return found._replace(rest=cursor), seconds
        cursor.close()
        return found, seconds

    async def answer(self, sql: str, parameters: Sequence[Any], *, many: bool) -> tuple[Sequence[Any], Any, int]:
        """All rows of a statement, the names of their columns, and how many rows it changed."""
        found = await self.run(sql, parameters, many=many)
        rows = found.rows if found.rest is None else [*found.rows, *await self.ask(_drained, found.rest)]
        return rows, found.description, found.rowcount

    async def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function answers on the connection's thread."""
        self._at_work = True
        answer = await self._execute(function, *arguments)  # type: ignore[no-untyped-call]
        self._at_work = False
        return answer

    async def commit(self) -> None:
        """Commits; a transaction without a statement never began."""
        if self.owed:
            self.owed = ""
        else:
            self._at_work = True
            try:
                await super().commit()
            except sqlite3.Error:
                self._at_work = False
                raise
            self._at_work = False

    def forgets(self) -> bool:
        """Ends a transaction that only read, on the spot: whether nothing is under way then."""
        self.owed = ""
        if self._at_work:
            return False
        if self._reads and self._conn.in_transaction:
            self._conn.rollback()
        return not self._conn.in_transaction

    async def rollback(self) -> None:
        """Rolls back what has begun, if anything has: after a commit nothing has."""
        if not self.forgets():
            await super().rollback()
            self._at_work = False


def connect(*arguments: Any, pace: Pace, **options: Any) -> ShortConnection:
    """A connection to be awaited; takes what `sqlite3.connect` takes, and what is known of the database's statements.

    One thread at a time uses it, its own or the event loop's; SQLAlchemy has it know (`check_same_thread`).
    """
    connection = ShortConnection(lambda: sqlite3.connect(*arguments, **options), 64)
    connection.pace = pace
    connection._thread.daemon = True  # a process ends without waiting for its readers
    return connection

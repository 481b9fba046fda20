"""Connections to SQLite that go to their thread once a statement.

The driver gives a statement four errands to the connection's thread (make a cursor, execute, fetch, close the cursor)
and the BEGIN before it three more. Each errand wakes a thread and then the event loop, which costs more than most
statements do. Here a statement, its rows and the BEGIN it owes are one errand.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import aiosqlite

AT_ONCE = 1000
"""How many rows come with a statement; a longer list is streamed, or fetched in a second errand."""


class _Found(NamedTuple):
    """What a statement left behind."""

    description: Any = None
    rowcount: int = -1
    lastrowid: int | None = None
    rows: Sequence[Any] = ()
    rest: sqlite3.Cursor | None = None
    """Where further rows are, when there are many."""


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
    _at_work: bool = False
    """Whether a statement was begun of which nobody has heard the end."""

    def cursor(self) -> ShortCursor:  # type: ignore[override]  # the driver's own goes to the thread to be made
        """A cursor; costs nothing."""
        return ShortCursor(self)

    async def run(self, sql: str, parameters: Sequence[Any], *, many: bool) -> _Found:
        """Runs a statement on the connection's thread, after the BEGIN it owes."""
        owed, self.owed, self._at_work = self.owed, "", True
        try:
            found: _Found = await self._execute(self._run, owed, sql, parameters, many)  # type: ignore[no-untyped-call]
        except sqlite3.Error:
            self._at_work = False
            raise
        self._at_work = False
        return found

    def _run(self, owed: str, sql: str, parameters: Sequence[Any], many: bool) -> _Found:
        if owed:
            self._conn.execute(owed)
        cursor = self._conn.executemany(sql, parameters) if many else self._conn.execute(sql, parameters)
        rows = cursor.fetchmany(AT_ONCE) if cursor.description else ()
        found = _Found(cursor.description, cursor.rowcount, cursor.lastrowid, rows)
        if len(rows) == AT_ONCE:
            return found._replace(rest=cursor)
        cursor.close()
        return found

    async def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function answers on the connection's thread."""
        return await self._execute(function, *arguments)  # type: ignore[no-untyped-call]

    async def commit(self) -> None:
        """Commits; a transaction without a statement never began."""
        if self.owed:
            self.owed = ""
        else:
            await super().commit()

    async def rollback(self) -> None:
        """Rolls back what has begun, if anything has: after a commit nothing has."""
        self.owed = ""
        if self._at_work or self._conn.in_transaction:
            await super().rollback()
            self._at_work = False


def connect(*arguments: Any, **options: Any) -> ShortConnection:
    """A connection to be awaited; takes what `sqlite3.connect` takes."""
    connection = ShortConnection(lambda: sqlite3.connect(*arguments, **options), 64)
    connection._thread.daemon = True  # a process ends without waiting for its readers
    return connection

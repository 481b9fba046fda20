"""An open transaction as stores see it: the same few methods on SQLite and on PostgreSQL."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from services.kit.errors import Unavailable

T = TypeVar("T")
Result = sa.CursorResult[*tuple[Any, ...]]
Row = sa.Row[*tuple[Any, ...]]
Values = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
# SQLSTATE of a PostgreSQL that is lost, full, stopping, crashed or starting: connecting again may succeed.
_AWAY_STATES = ("08", "53", "57P01", "57P02", "57P03")


class DatabaseAway(Unavailable):
    """The database does not answer."""


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn errors of an unreachable database into `DatabaseAway`, which callers may retry; pass on all others."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout, sqlite3.OperationalError, OSError) as error:
        raise DatabaseAway("the database does not answer; try again in a moment") from error
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None) or ""
        if error.connection_invalidated or state.startswith(_AWAY_STATES):
            raise DatabaseAway("the database connection was lost; try again in a moment") from error
        raise


class Transaction(ABC):
    """An open transaction. `Database` alone begins, commits and rolls back.

    Read the rows of a statement before you run the next one: on SQLite a result is a cursor that is still open.
    """

    def __init__(self, dialect: sa.Dialect) -> None:
        self.dialect = dialect
        self._actions: list[Callable[[], None]] = []

    @property
    def is_sqlite(self) -> bool:
        return self.dialect.name == "sqlite"

    @abstractmethod
    async def execute(self, statement: sa.Executable, values: Values = None) -> Result:
        """Run a statement, for one set of values or for each of many."""

    @abstractmethod
    async def exec_driver_sql(self, text: str, values: Any = None) -> Result:
        """Run a text with values in the form that the driver takes."""

    @abstractmethod
    def partitions(self, query: sa.Select[Any], size: int) -> AsyncIterator[Sequence[Row]]:
        """Yield the rows of a query, at most `size` at a time, without holding all of them."""

    @abstractmethod
    async def run_sync(self, function: Callable[[sa.Connection], T]) -> T:
        """Call a function that takes a synchronous connection, such as `MetaData.create_all`."""

    def after_commit(self, action: Callable[[], None]) -> None:
        """Call `action` once the transaction has committed; never, if it rolls back."""
        self._actions.append(action)

    def run_actions(self) -> None:
        """Call what `after_commit` collected."""
        for action in self._actions:
            action()


class Connections(Protocol):
    """The connections to one database; each kind of database has its own class."""

    @property
    def engine(self) -> sa.Engine:
        """SQLAlchemy's engine, for its events."""
        ...

    def reading(self, *, offload: bool, snapshot: bool) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction that only reads."""
        ...

    def writing(self, *, offload: bool) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction that commits when the block ends and rolls back when it raises."""
        ...

    async def change_tables(self, change: Callable[[sa.Connection], None]) -> None:
        """Call `change` in a transaction, and in no other process at the same time; then commit."""
        ...

    async def vacuum(self) -> None:
        """Return the space of deleted rows to the disk."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...

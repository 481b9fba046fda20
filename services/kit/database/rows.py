"""Rows ↔ records, shared by every store. All functions run in the caller's transaction and on both databases.

To read, select `columns` of a record type and call `fetch_one` or `fetch_all`. To write many rows, call `insert_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from inspect import signature
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from coterie.records import reading
from coterie.records.base import OpenEnum, Record
from services.kit.database.transactions import Transaction

Tx = Transaction
Row = tuple[Any, ...]
T = TypeVar("T")
R = TypeVar("R", bound=Record)
W = TypeVar("W", bound=OpenEnum)
MOST_IN_LIST = 500
"""Values in one IN list: below the parameter limits of both databases."""
_ADVISORY_LOCK = sa.text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")


class EnumColumn(sa.types.TypeDecorator[W], Generic[W]):
    """A column of enum members, stored as text; None is the empty text."""

    impl = sa.String
    cache_ok = True

    def __init__(self, kind: type[W], length: int) -> None:
        super().__init__(length)
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        return "" if value is None else str(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> W | None:
        return self.kind(value) if value else None


class RecordsColumn(sa.types.TypeDecorator[list[R]], Generic[R]):
    """A column with a list of records as JSON; it also accepts their JSON documents."""

    impl = sa.JSON
    cache_ok = True

    def __init__(self, kind: type[R]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> Any:
        return reading.plain(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> list[R] | None:
        return None if value is None else [self.kind.from_json(row) for row in value]


def columns(
    kind: Callable[..., T], table: sa.FromClause, /, **other: sa.ColumnElement[Any]
) -> list[sa.ColumnElement[Any]]:
    """Return the columns of a record type in field order: from `other`, or the table's column of that name."""
    return [other[name] if name in other else table.c[name] for name in signature(kind).parameters]


async def fetch_one(
    tx: Tx, query: sa.Select[Any], kind: Callable[..., T], values: Mapping[str, Any] | None = None
) -> T | None:
    """Return the only record of a query that selects `columns` of `kind`, or None. values: the query's parameters."""
    row = (await tx.execute(query, values)).one_or_none()
    return None if row is None else kind(*row)


async def fetch_all(
    tx: Tx, query: sa.Select[Any], kind: Callable[..., T], values: Mapping[str, Any] | None = None
) -> list[T]:
    """Return all records of a query, in its order."""
    return [kind(*row) for row in await tx.execute(query, values)]


def batches(items: Sequence[T], size: int = MOST_IN_LIST) -> Iterator[Sequence[T]]:
    """Split items into batches of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Replace tuples by lists, for JSON columns."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def inserting(tx: Tx, table: sa.Table) -> Any:
    """Build an INSERT that supports ON CONFLICT, for the transaction's dialect."""
    return inserting_for(tx.dialect.name, table)


def inserting_for(dialect: str, table: sa.Table) -> Any:
    """Build an INSERT that supports ON CONFLICT, by dialect name, for cached statements."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


async def upsert(
    tx: Tx, table: sa.Table, rows: list[dict[str, Any]], keys: list[str], *, only: list[str] | None = None
) -> None:
    """Insert rows; where a key exists, update the columns `only` (all when None, none when empty)."""
    if rows:
        await tx.execute(_upserting(tx.dialect.name, table, tuple(keys), None if only is None else tuple(only)), rows)


@cache
def _upserting(dialect: str, table: sa.Table, keys: tuple[str, ...], only: tuple[str, ...] | None) -> Any:
    """Build the statement of `upsert`; cached, because building costs more than running it for one row."""
    statement = inserting_for(dialect, table)
    changed = [c.name for c in table.columns if c.name not in keys] if only is None else only
    if not changed:
        return statement.on_conflict_do_nothing(index_elements=keys)
    changes = {name: statement.excluded[name] for name in changed}
    return statement.on_conflict_do_update(index_elements=keys, set_=changes)


async def advisory_lock(tx: Tx, name: str) -> None:
    """Wait until no other open transaction of this database holds the lock `name`; SQLite has one writer anyway."""
    if not tx.is_sqlite:
        await tx.execute(_ADVISORY_LOCK, {"name": name})


async def insert_rows(
    tx: Tx, into: Sequence[sa.ColumnElement[Any]], rows: Sequence[Row], on_conflict: str = ""
) -> None:
    """Insert rows whose values are in the order of the columns `into` of one table.

    Rows are plain tuples, because SQLAlchemy's dictionaries cost more than the database. SQLite receives them by
    `executemany`, PostgreSQL as one array per column. `on_conflict` follows ON CONFLICT. The statement contains only
    names of our tables; every value is a parameter in the driver's own type.
    """
    if not rows:
        return
    owned = [column for column in into if isinstance(column, sa.Column)]
    names = ", ".join(column.name for column in owned)
    ending = f" ON CONFLICT {on_conflict}" if on_conflict else ""
    start = f"INSERT INTO {owned[0].table.name} ({names})"
    if tx.dialect.name == "sqlite":
        marks = ", ".join("?" * len(owned))
        await tx.exec_driver_sql(f"{start} VALUES ({marks}){ending}", list(rows))
        return
    arrays = ", ".join(f"${k}::{_type(column)}[]" for k, column in enumerate(owned, start=1))
    values = tuple(list(column) for column in zip(*rows, strict=True))
    await tx.exec_driver_sql(f"{start} SELECT * FROM unnest({arrays}){ending}", values)


async def update_rows(tx: Tx, statement: sa.Update, names: Sequence[str], rows: Sequence[Row]) -> None:
    """Run a cached statement for each row; rows are tuples in the order of the parameters `names`."""
    if not rows:
        return
    text, places = _compiled(statement, tx.dialect, tuple(names))
    await tx.exec_driver_sql(text, [tuple(row[place] for place in places) for row in rows])


@lru_cache(maxsize=64)
def _compiled(statement: sa.Update, dialect: sa.Dialect, names: tuple[str, ...]) -> tuple[str, list[int]]:
    """Compile a statement; return its text and, per placeholder, the index of its value in a row."""
    compiled = statement.compile(dialect=dialect, column_keys=list(names))
    return str(compiled), [names.index(name) for name in compiled.positiontup or ()]


def _type(column: sa.Column[Any]) -> str:
    match column.type:
        case sa.Double():
            return "double precision"
        case sa.BigInteger():
            return "bigint"
        case sa.Integer():
            return "integer"
        case sa.Boolean():
            return "boolean"
        case _:
            return "text"

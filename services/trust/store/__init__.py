"""Stores of the trust registry: each works inside the caller's transaction and never commits.

The contract is the same on SQLite and PostgreSQL; the tests run every store on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


def inserting(connection: AsyncConnection, table: sa.Table) -> Any:
    """An INSERT into `table` that knows ON CONFLICT, which both databases spell alike but SQLAlchemy types apart."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


async def execute_many(
    connection: AsyncConnection, statement: sa.Insert | sa.Update, names: Sequence[str], rows: list[tuple[Any, ...]]
) -> None:
    """Runs `statement` for every row of values of the bind parameters `names`.

    Hands the rows to the driver as they are: building a dictionary for each would cost as much as storing it. Values
    must be what the driver takes (no type of ours converts them).
    """
    compiled = statement.compile(dialect=connection.dialect, column_keys=list(names))
    places = [names.index(name) for name in compiled.positiontup or ()]
    if places != list(range(len(names))):
        rows = [tuple(row[place] for place in places) for row in rows]
    await connection.exec_driver_sql(str(compiled), rows)


async def serialise(connection: AsyncConnection, lock: int) -> None:
    """Lets one transaction at a time pass `lock`; on SQLite writers queue anyway."""
    if connection.dialect.name != "sqlite":
        await connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": lock})

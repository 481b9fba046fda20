"""Stores of the trust registry: each works inside the caller's transaction and never commits.

The contract is the same on SQLite and PostgreSQL; the tests run every store on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from services.kit.rows import Tx


def inserting(tx: Tx, table: sa.Table) -> Any:
    """An INSERT into `table` that knows ON CONFLICT, which both databases spell alike but SQLAlchemy types apart."""
    return sqlite.insert(table) if tx.dialect.name == "sqlite" else postgresql.insert(table)


async def execute_many(
    tx: Tx, statement: sa.Insert | sa.Update, names: Sequence[str], rows: list[tuple[Any, ...]]
) -> None:
    """Runs `statement` for every row of values of the bind parameters `names`.

    Hands the rows to the driver as they are: building a dictionary for each would cost as much as storing it. Values
    must be what the driver takes (no type of ours converts them).
    """
    compiled = statement.compile(dialect=tx.dialect, column_keys=list(names))
    places = [names.index(name) for name in compiled.positiontup or ()]
    if places != list(range(len(names))):
        rows = [tuple(row[place] for place in places) for row in rows]
    await tx.exec_driver_sql(str(compiled), rows)


async def serialise(tx: Tx, lock: int) -> None:
    """Lets one transaction at a time pass `lock`; on SQLite writers queue anyway."""
    if tx.dialect.name != "sqlite":
        await tx.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": lock})

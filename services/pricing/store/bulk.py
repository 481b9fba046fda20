"""Many rows at once, the fastest way each database has, inside the caller's transaction.

SQLAlchemy builds a dictionary and a parameter set per row, which for a round of ten thousand payments costs more than
the database itself. Here rows are plain tuples: SQLite takes them by `executemany`, PostgreSQL as one array per column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from services.kit.rows import Tx

Row = tuple[Any, ...]


async def insert_rows(tx: Tx, columns: Sequence[sa.Column[Any]], rows: Sequence[Row], on_conflict: str = "") -> None:
    """Inserts `rows`, whose values are in the order of `columns` of one table.

    `on_conflict` is what follows ON CONFLICT, which both databases spell alike. The statement holds names of our own
    tables only; every value is a parameter.
    """
    if not rows:
        return
    names = ", ".join(column.name for column in columns)
    ending = f" ON CONFLICT {on_conflict}" if on_conflict else ""
    into = f"INSERT INTO {columns[0].table.name} ({names})"
    if tx.dialect.name == "sqlite":
        marks = ", ".join("?" * len(columns))
        await tx.exec_driver_sql(f"{into} VALUES ({marks}){ending}", list(rows))
        return
    arrays = ", ".join(f"${k}::{_type(column)}[]" for k, column in enumerate(columns, start=1))
    values = tuple(list(column) for column in zip(*rows, strict=True))
    await tx.exec_driver_sql(f"{into} SELECT * FROM unnest({arrays}){ending}", values)


def _type(column: sa.Column[Any]) -> str:
    match column.type:
        case sa.Double():
            return "double precision"
        case sa.BigInteger():
            return "bigint"
        case sa.Integer():
            return "integer"
        case _:
            return "text"

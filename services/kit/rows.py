"""Rows: what every store shares."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.asyncio import AsyncConnection

Tx = AsyncConnection


def plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


async def upsert(
    tx: Tx, table: sa.Table, rows: list[dict[str, Any]], keys: list[str], *, only: list[str] | None = None
) -> None:
    """Inserts rows; where a key exists, updates the columns `only` (all when None, none when empty)."""
    if not rows:
        return
    make = sqlite_insert if tx.dialect.name == "sqlite" else postgresql_insert
    statement = make(table)
    columns = [c.name for c in table.columns if c.name not in keys] if only is None else only
    if columns:
        changes = {name: statement.excluded[name] for name in columns}
        await tx.execute(statement.on_conflict_do_update(index_elements=keys, set_=changes), rows)
    else:
        await tx.execute(statement.on_conflict_do_nothing(index_elements=keys), rows)

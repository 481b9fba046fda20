"""Progress of imports in the database."""

from __future__ import annotations

from dataclasses import asdict

import sqlalchemy as sa

from services.kit.database.rows import Tx, columns, fetch_one, inserting
from services.trust.domain.records import ImportState
from services.trust.tables import imports

_COLUMNS = columns(ImportState, imports)


async def begin(tx: Tx, state: ImportState, now: float) -> None:
    """Store a new import unless its name exists."""
    values = {**asdict(state), "started_at": now, "changed_at": now}
    await tx.execute(inserting(tx, imports).on_conflict_do_nothing(), values)


async def by_name(tx: Tx, name: str, *, for_update: bool = False) -> ImportState | None:
    """Return the import with that name; `for_update` locks it until the transaction ends."""
    query = sa.select(*_COLUMNS).where(imports.c.name == name)
    return await fetch_one(tx, query.with_for_update() if for_update else query, ImportState)


async def save(tx: Tx, state: ImportState, now: float) -> None:
    """Store the progress of an import."""
    values = {**asdict(state), "changed_at": now}
    await tx.execute(sa.update(imports).where(imports.c.name == state.name).values(values))

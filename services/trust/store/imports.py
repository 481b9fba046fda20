"""Imports in the database: how far each got."""

from __future__ import annotations

from dataclasses import asdict

import sqlalchemy as sa

from services.kit.rows import Tx
from services.trust.domain.records import ImportState
from services.trust.store import inserting
from services.trust.tables import imports

_COLUMNS = (
    imports.c.name,
    imports.c.owner_name,
    imports.c.synthetic,
    imports.c.last_line,
    imports.c.devices,
    imports.c.interactions,
    imports.c.relations,
)


async def begin(tx: Tx, state: ImportState, now: float) -> None:
    """Notes a new import unless its name is known."""
    values = {**asdict(state), "started_at": now, "changed_at": now}
    await tx.execute(inserting(tx, imports).on_conflict_do_nothing(), values)


async def by_name(tx: Tx, name: str, *, for_update: bool = False) -> ImportState | None:
    """The import with that name; `for_update` holds it until the transaction ends."""
    query = sa.select(*_COLUMNS).where(imports.c.name == name)
    row = (await tx.execute(query.with_for_update() if for_update else query)).one_or_none()
    return ImportState(*row) if row else None


async def save(tx: Tx, state: ImportState, now: float) -> None:
    """Notes how far an import got."""
    values = {**asdict(state), "changed_at": now}
    await tx.execute(sa.update(imports).where(imports.c.name == state.name).values(values))

"""Owners in the database."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from services.kit.rows import Tx
from services.trust.domain.records import Owner, Page
from services.trust.store import inserting
from services.trust.tables import owners

_CHUNK = 500
_COLUMNS = (owners.c.number, owners.c.id, owners.c.name, owners.c.sharing, owners.c.created_at)


async def add(tx: Tx, owner_id: str, name: str, sharing: str, at: float) -> bool:
    """Adds an owner unless the name is taken; whether it did."""
    statement = inserting(tx, owners).on_conflict_do_nothing(index_elements=["name"])
    result = await tx.execute(statement, {"id": owner_id, "name": name, "sharing": sharing, "created_at": at})
    return bool(result.rowcount)


async def ensure(tx: Tx, names: Mapping[str, str], at: float) -> dict[str, Owner]:
    """The owners with these names, by name; those not there are added under the id given with the name."""
    statement = inserting(tx, owners).on_conflict_do_nothing(index_elements=["name"])
    rows = [{"id": owner_id, "name": name, "sharing": "own", "created_at": at} for name, owner_id in names.items()]
    found: dict[str, Owner] = {}
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        await tx.execute(statement, part)
        query = sa.select(*_COLUMNS).where(owners.c.name.in_([row["name"] for row in part]))
        found.update((row.name, Owner(*row)) for row in await tx.execute(query))
    return found


async def by_id(tx: Tx, owner_id: str) -> Owner | None:
    """The owner with that id."""
    return await _one(tx, owners.c.id == owner_id)


async def by_name(tx: Tx, name: str) -> Owner | None:
    """The owner with that name."""
    return await _one(tx, owners.c.name == name)


async def page(tx: Tx, wanted: Page) -> list[Owner]:
    """Owners in order of id."""
    query = sa.select(*_COLUMNS).where(owners.c.id > wanted.cursor).order_by(owners.c.id).limit(wanted.limit)
    return [Owner(*row) for row in await tx.execute(query)]


async def set_sharing(tx: Tx, owner_id: str, sharing: str) -> None:
    """Changes what an owner shares."""
    await tx.execute(sa.update(owners).where(owners.c.id == owner_id).values(sharing=sharing))


async def sharing(tx: Tx) -> list[tuple[int, str]]:
    """Owners that share more than their own, by number."""
    rows = await tx.execute(sa.select(owners.c.number, owners.c.sharing).where(owners.c.sharing != "own"))
    return [(row.number, row.sharing) for row in rows]


async def _one(tx: Tx, condition: sa.ColumnElement[bool]) -> Owner | None:
    row = (await tx.execute(sa.select(*_COLUMNS).where(condition))).one_or_none()
    return Owner(*row) if row else None

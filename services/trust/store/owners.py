"""Owners in the database."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from services.trust.domain.records import Owner, Page
from services.trust.store import inserting
from services.trust.tables import owners

_CHUNK = 500
_COLUMNS = (owners.c.number, owners.c.id, owners.c.name, owners.c.sharing, owners.c.created_at)


async def add(connection: AsyncConnection, owner_id: str, name: str, sharing: str, at: float) -> bool:
    """Adds an owner unless the name is taken; whether it did."""
    statement = inserting(connection, owners).on_conflict_do_nothing(index_elements=["name"])
    result = await connection.execute(statement, {"id": owner_id, "name": name, "sharing": sharing, "created_at": at})
    return bool(result.rowcount)


async def ensure(connection: AsyncConnection, names: Mapping[str, str], at: float) -> dict[str, Owner]:
    """The owners with these names, by name; those not there are added under the id given with the name."""
    statement = inserting(connection, owners).on_conflict_do_nothing(index_elements=["name"])
    rows = [{"id": owner_id, "name": name, "sharing": "own", "created_at": at} for name, owner_id in names.items()]
    found: dict[str, Owner] = {}
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        await connection.execute(statement, part)
        query = sa.select(*_COLUMNS).where(owners.c.name.in_([row["name"] for row in part]))
        found.update((row.name, Owner(*row)) for row in await connection.execute(query))
    return found


async def by_id(connection: AsyncConnection, owner_id: str) -> Owner | None:
    """The owner with that id."""
    return await _one(connection, owners.c.id == owner_id)


async def by_name(connection: AsyncConnection, name: str) -> Owner | None:
    """The owner with that name."""
    return await _one(connection, owners.c.name == name)


async def page(connection: AsyncConnection, wanted: Page) -> list[Owner]:
    """Owners in order of id."""
    query = sa.select(*_COLUMNS).where(owners.c.id > wanted.cursor).order_by(owners.c.id).limit(wanted.limit)
    return [Owner(*row) for row in await connection.execute(query)]


async def set_sharing(connection: AsyncConnection, owner_id: str, sharing: str) -> None:
    """Changes what an owner shares."""
    await connection.execute(sa.update(owners).where(owners.c.id == owner_id).values(sharing=sharing))


async def sharing(connection: AsyncConnection) -> list[tuple[int, str]]:
    """Owners that share more than their own, by number."""
    rows = await connection.execute(sa.select(owners.c.number, owners.c.sharing).where(owners.c.sharing != "own"))
    return [(row.number, row.sharing) for row in rows]


async def _one(connection: AsyncConnection, condition: sa.ColumnElement[bool]) -> Owner | None:
    row = (await connection.execute(sa.select(*_COLUMNS).where(condition))).one_or_none()
    return Owner(*row) if row else None

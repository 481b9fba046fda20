"""Owners in the database."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from services.kit.database.rows import Tx, batches, columns, fetch_all, fetch_one, inserting
from services.kit.rpc.paging import Page
from services.trust.domain.records import Owner
from services.trust.tables import owners

_COLUMNS = columns(Owner, owners)


async def add(tx: Tx, owner_id: str, name: str, sharing: str, at: float, public: bool = False) -> bool:
    """Add an owner unless the name is taken; return whether it was added."""
    statement = inserting(tx, owners).on_conflict_do_nothing(index_elements=["name"])
    row = {"id": owner_id, "name": name, "sharing": sharing, "created_at": at, "public": public}
    result = await tx.execute(statement, row)
    return bool(result.rowcount)


async def ensure(tx: Tx, names: Mapping[str, str], at: float) -> dict[str, Owner]:
    """Return the owners with these names, by name; missing ones are added under the id given with the name."""
    statement = inserting(tx, owners).on_conflict_do_nothing(index_elements=["name"])
    rows = [{"id": owner_id, "name": name, "sharing": "own", "created_at": at} for name, owner_id in names.items()]
    result: dict[str, Owner] = {}
    for part in batches(rows):
        await tx.execute(statement, part)
        query = sa.select(*_COLUMNS).where(owners.c.name.in_([row["name"] for row in part]))
        result.update((owner.name, owner) for owner in await fetch_all(tx, query, Owner))
    return result


async def by_id(tx: Tx, owner_id: str) -> Owner | None:
    return await _one(tx, owners.c.id == owner_id)


async def by_name(tx: Tx, name: str) -> Owner | None:
    return await _one(tx, owners.c.name == name)


async def page(tx: Tx, wanted: Page) -> list[Owner]:
    """List owners in order of id."""
    query = sa.select(*_COLUMNS).where(owners.c.id > wanted.cursor).order_by(owners.c.id).limit(wanted.limit)
    return await fetch_all(tx, query, Owner)


async def set_sharing(tx: Tx, owner_id: str, sharing: str) -> None:
    """Change what an owner shares."""
    await tx.execute(sa.update(owners).where(owners.c.id == owner_id).values(sharing=sharing))


async def set_public(tx: Tx, number: int) -> None:
    """Mark an owner as public."""
    await tx.execute(sa.update(owners).where(owners.c.number == number).values(public=True))


async def sharing(tx: Tx) -> list[tuple[int, str]]:
    """Return the owners that share more than their own ties, by number."""
    rows = await tx.execute(sa.select(owners.c.number, owners.c.sharing).where(owners.c.sharing != "own"))
    return [(row.number, row.sharing) for row in rows]


async def _one(tx: Tx, condition: sa.ColumnElement[bool]) -> Owner | None:
    return await fetch_one(tx, sa.select(*_COLUMNS).where(condition), Owner)

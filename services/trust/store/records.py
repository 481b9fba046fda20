"""Owners' records in the database: what their devices did together, and what new devices' pairs inherited."""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa

from services.kit.database.rows import Row, Tx, batches, insert_rows
from services.trust.domain.evidence import Evidence
from services.trust.domain.pairs import EVIDENCE
from services.trust.store.social import among, wanted
from services.trust.tables import devices, inheritances, owner_records

_RECORD = [owner_records.c[name] for name in EVIDENCE]
_KEPT = [owner_records.c.key, owner_records.c.low, owner_records.c.high, *_RECORD]
_CHANGED = ", ".join(f"{name} = excluded.{name}" for name in EVIDENCE)


async def some(tx: Tx, keys: list[int]) -> dict[int, Evidence]:
    """Return the existing records among `keys`."""
    result = await tx.execute(_some(tx.dialect.name), {"wanted": wanted(tx, keys)})
    return {key: Evidence(*rest) for key, *rest in result}


@cache
def _some(dialect: str) -> sa.Select[Any]:
    return sa.select(owner_records.c.key, *_RECORD).where(among(dialect, owner_records.c.key, sa.BigInteger()))


async def save(tx: Tx, rows: list[Row]) -> None:
    """Store records: rows of key, low and high owner, and `EVIDENCE`."""
    await insert_rows(tx, _KEPT, rows, f"(key) DO UPDATE SET {_CHANGED}")


async def forget(tx: Tx) -> None:
    """Delete all records, before they are recomputed."""
    await tx.execute(sa.delete(owner_records))


async def of_owner(tx: Tx, owner: int, most: int) -> list[tuple[int, Evidence]]:
    """List an owner's records with others, latest first: the other owner and the record."""
    other = sa.case((owner_records.c.low == owner, owner_records.c.high), else_=owner_records.c.low)
    query = sa.select(other, *_RECORD).where((owner_records.c.low == owner) | (owner_records.c.high == owner))
    rows = await tx.execute(query.order_by(owner_records.c.reference_at.desc()).limit(most))
    return [(number, Evidence(*rest)) for number, *rest in rows]


async def devices_of(tx: Tx, owners: list[int]) -> list[tuple[int, int]]:
    """Return owner and device, by number, of the devices of some owners."""
    result: list[tuple[int, int]] = []
    for part in batches(owners):
        query = sa.select(devices.c.owner_number, devices.c.number).where(devices.c.owner_number.in_(part))
        result.extend((owner, number) for owner, number in await tx.execute(query))
    return result


async def owners_of(tx: Tx, numbers: list[int]) -> dict[int, int]:
    """Return the owners of devices, both by number."""
    result = await tx.execute(_owners(tx.dialect.name), {"wanted": wanted(tx, numbers)})
    return dict(result.all())


@cache
def _owners(dialect: str) -> sa.Select[Any]:
    query = sa.select(devices.c.number, devices.c.owner_number)
    return query.where(among(dialect, devices.c.number, sa.BigInteger()))


async def inherit(tx: Tx, rows: list[Row]) -> None:
    """Store what pairs inherited: rows of pair, time and `EVIDENCE`."""
    columns = [inheritances.c.pair, inheritances.c.given_at, *_INHERITED]
    await insert_rows(tx, columns, rows, f"(pair) DO UPDATE SET given_at = excluded.given_at, {_CHANGED}")


_INHERITED = [inheritances.c[name] for name in EVIDENCE]


async def inherited(tx: Tx, start: int, stop: int, at: float | None = None) -> dict[int, Evidence]:
    """Return what the pairs from `start` to before `stop` inherited (until `at`), by number."""
    query: sa.Select[Any] = sa.select(inheritances.c.pair, *_INHERITED)
    query = query.where(inheritances.c.pair >= start, inheritances.c.pair < stop)
    if at is not None:
        query = query.where(inheritances.c.given_at <= at)
    return {pair: Evidence(*rest) for pair, *rest in await tx.execute(query)}

"""Replicas and their shares of a round's sum."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from services.aggregation import tables as t
from services.aggregation.domain.records import Partial
from services.kit.database.rows import Tx, columns, fetch_all, upsert

_PARTIALS: sa.Select[Any] = sa.select(*columns(Partial, t.partials))


async def put_partial(tx: Tx, partial: Partial) -> None:
    """Store a replica's share of a round's sum."""
    row = asdict(partial)
    row["weight_units"] = str(partial.weight_units)
    row["devices"] = list(partial.devices)
    await upsert(tx, t.partials, [row], ["task_id", "round", "line", "replica"])


async def list_partials(tx: Tx, task_id: str, number: int) -> list[Partial]:
    """List all shares of a round's sum."""
    query = _PARTIALS.where(t.partials.c.task_id == task_id, t.partials.c.round == number)
    return await fetch_all(tx, query, _partial)


async def drop_partials(tx: Tx, task_id: str, number: int) -> set[str]:
    """Delete the shares of a closed round and return their digests."""
    p = t.partials
    gone = p.delete().where(p.c.task_id == task_id, p.c.round == number).returning(p.c.digest)
    return set((await tx.execute(gone)).scalars()) - {""}


async def see_replica(tx: Tx, replica: str, now: float) -> None:
    """Record that a replica is alive."""
    await upsert(tx, t.replicas, [{"id": replica, "seen_at": now}], ["id"])


async def list_replicas(tx: Tx, since: float) -> set[str]:
    """Return replicas seen since a time."""
    return set((await tx.execute(sa.select(t.replicas.c.id).where(t.replicas.c.seen_at >= since))).scalars())


def _partial(*values: Any) -> Partial:
    result = Partial(*values)
    return replace(result, weight_units=int(result.weight_units), devices=tuple(result.devices))

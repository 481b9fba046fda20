"""Forgetting: which rows of tasks that ended long ago may go, and the rows that name blobs among them."""

from __future__ import annotations

import sqlalchemy as sa

from services.aggregation import tables as t
from services.kit.database.rows import Tx

KINDS: dict[str, tuple[sa.Table, ...]] = {
    "participations": (t.participations,),
    "events": (t.events,),
    "others": (t.letters, t.partials, t.sum_sessions, t.clerks, t.masked_updates, t.shares, t.measurements, t.worths),
}
"""What is forgotten of a task, by what it is counted as. Enrolments, rounds, models and contributions stay."""
_BLOBS = (
    t.participations.c.digest,
    t.letters.c.digest,
    t.partials.c.digest,
    t.sum_sessions.c.digest,
    t.sum_sessions.c.opened,
    t.masked_updates.c.digest,
    t.shares.c.digest,
)


async def ended_before(tx: Tx, at: float, task_id: str = "") -> list[str]:
    """Tasks that ended before then, with everything settled; of all tasks, or whether this one did."""
    c = t.tasks.c
    query = sa.select(c.id).where(c.ended_at > 0.0, c.ended_at < at, c.released)
    query = query.where(c.id == task_id) if task_id else query
    return list((await tx.execute(query.order_by(c.id))).scalars())


async def count(tx: Tx, task_id: str) -> dict[str, int]:
    """How many rows a task has of each kind."""
    result = {}
    for kind, tables in KINDS.items():
        counts = [sa.select(sa.func.count()).where(table.c.task_id == task_id) for table in tables]
        result[kind] = sum([int((await tx.execute(item)).scalar_one()) for item in counts])
    return result


async def blobs(tx: Tx, task_id: str) -> set[str]:
    """Digests that rows to be forgotten name."""
    parts = [sa.select(column).where(column.table.c.task_id == task_id, column != "") for column in _BLOBS]
    return set((await tx.execute(sa.union(*parts))).scalars())


async def forget(tx: Tx, task_id: str) -> None:
    """Forgets the rows of a task, of every kind."""
    for tables in KINDS.values():
        for table in tables:
            await tx.execute(table.delete().where(table.c.task_id == task_id))

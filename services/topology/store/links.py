"""Measured links in the database."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from services.kit.rows import Tx, upsert
from services.topology import tables


async def put(tx: Tx, task_id: str, links: Sequence[tuple[str, str, float]], now: float) -> None:
    """Stores measured links; each pair is kept once, smaller id first."""
    rows = [
        {"task_id": task_id, "device_a": min(a, b), "device_b": max(a, b), "seconds": seconds, "measured_at": now}
        for a, b, seconds in links
    ]
    await upsert(tx, tables.links, rows, ["task_id", "device_a", "device_b"])


async def of_task(tx: Tx, task_id: str) -> dict[tuple[str, str], float]:
    """Measured seconds by pair."""
    rows = await tx.execute(sa.select(tables.links).where(tables.links.c.task_id == task_id))
    return {(row.device_a, row.device_b): row.seconds for row in rows}

"""Measured links in the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import sqlalchemy as sa

from services.kit.rows import Tx, upsert
from services.topology import tables
from services.topology.domain.records import MeasuredWay

Link = tuple[str, str, MeasuredWay]


async def put(tx: Tx, task_id: str, links: Sequence[Link], now: float) -> None:
    """Stores measured links; each pair is kept once, smaller id first."""
    latest = {(min(a, b), max(a, b)): way for a, b, way in links}
    rows = [
        {"task_id": task_id, "device_a": low, "device_b": high, **asdict(way), "measured_at": now}
        for (low, high), way in latest.items()
    ]
    await upsert(tx, tables.links, rows, ["task_id", "device_a", "device_b"])


async def of_task(tx: Tx, task_id: str) -> dict[tuple[str, str], MeasuredWay]:
    """What was measured, by pair."""
    rows = await tx.execute(sa.select(tables.links).where(tables.links.c.task_id == task_id))
    return {
        (row.device_a, row.device_b): MeasuredWay(row.seconds, row.round_trip_seconds, row.bytes_per_second)
        for row in rows
    }


async def count(tx: Tx, task_id: str, device_id: str) -> int:
    """How many links of a device are stored."""
    table = tables.links.c
    mine = (table.device_a == device_id) | (table.device_b == device_id)
    found = await tx.execute(sa.select(sa.func.count()).where(table.task_id == task_id, mine))
    return int(found.scalar_one())

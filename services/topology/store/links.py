"""Measured links in the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import sqlalchemy as sa

from services.kit.database.rows import Tx, upsert
from services.topology import tables
from services.topology.domain.records import MeasuredWay

Link = tuple[str, str, MeasuredWay]


async def put(tx: Tx, task_id: str, links: Sequence[Link], now: float) -> None:
    """Store measured links; for each (reporter, other) pair the latest replaces the earlier one."""
    latest = {(reporter, other): way for reporter, other, way in links}
    rows = [
        {"task_id": task_id, "device_a": reporter, "device_b": other, **asdict(way), "measured_at": now}
        for (reporter, other), way in latest.items()
    ]
    await upsert(tx, tables.links, rows, ["task_id", "device_a", "device_b"])


async def of_task(tx: Tx, task_id: str) -> dict[tuple[str, str], MeasuredWay]:
    """Measured links of a task by (reporter, other)."""
    rows = await tx.execute(sa.select(tables.links).where(tables.links.c.task_id == task_id))
    return {
        (row.device_a, row.device_b): MeasuredWay(row.seconds, row.round_trip_seconds, row.bytes_per_second)
        for row in rows
    }


async def count(tx: Tx, task_id: str, device_id: str) -> int:
    """Number of links that a device has reported."""
    table = tables.links.c
    result = await tx.execute(sa.select(sa.func.count()).where(table.task_id == task_id, table.device_a == device_id))
    return int(result.scalar_one())

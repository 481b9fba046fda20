"""Plans, measured links, cells and policies: rows in, messages out, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.rows import upsert
from services.topology import tables as t

Tx = AsyncConnection


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy's row: "training", "ready" or "failed"; digest of its newest checkpoint; request: the whole job."""

    id: str
    learner: str
    layout: str
    state: str
    progress: float
    reward: float
    created_at: float
    reason: str
    digest: str
    request: bytes


async def find_plan(tx: Tx, task_id: str, version: int = 0) -> pb.Plan | None:
    """A version of a task's plan; 0 means the newest."""
    query = sa.select(t.plans.c.plan).where(t.plans.c.task_id == task_id)
    query = query.where(t.plans.c.version == version) if version else query.order_by(t.plans.c.version.desc()).limit(1)
    found = (await tx.execute(query)).scalar_one_or_none()
    return None if found is None else pb.Plan.FromString(found)


async def find_plan_for(tx: Tx, task_id: str, key: str) -> pb.Plan | None:
    """The plan a request with this key was answered with."""
    query = sa.select(t.plan_keys.c.version).where(t.plan_keys.c.task_id == task_id, t.plan_keys.c.key == key)
    version = (await tx.execute(query)).scalar_one_or_none()
    return None if version is None else await find_plan(tx, task_id, version)


async def add_plan(tx: Tx, plan: pb.Plan) -> None:
    """Stores a plan under its version."""
    row = {
        "task_id": plan.task_id,
        "version": plan.version,
        "created_at": plan.created_at,
        "plan": plan.SerializeToString(),
    }
    await tx.execute(t.plans.insert(), [row])


async def answer_with(tx: Tx, task_id: str, key: str, version: int) -> None:
    """Remembers that requests with this key get this version."""
    await upsert(tx, t.plan_keys, [{"task_id": task_id, "key": key, "version": version}], ["task_id", "key"])


async def put_links(tx: Tx, task_id: str, links: Sequence[tuple[str, str, float]], now: float) -> None:
    """Stores measured links; each pair is kept once, smaller id first."""
    rows = [
        {"task_id": task_id, "device_a": min(a, b), "device_b": max(a, b), "seconds": seconds, "measured_at": now}
        for a, b, seconds in links
    ]
    await upsert(tx, t.links, rows, ["task_id", "device_a", "device_b"])


async def list_links(tx: Tx, task_id: str) -> dict[tuple[str, str], float]:
    """Measured seconds by pair."""
    rows = await tx.execute(sa.select(t.links).where(t.links.c.task_id == task_id))
    return {(row.device_a, row.device_b): row.seconds for row in rows}


async def put_cell(tx: Tx, cell: pb.Cell) -> None:
    """Stores a cell, replacing an earlier one of that id."""
    await upsert(tx, t.cells, [{"id": cell.id, "cell": cell.SerializeToString()}], ["id"])


async def list_cells(tx: Tx) -> list[pb.Cell]:
    """All cells by id."""
    rows = await tx.execute(sa.select(t.cells.c.cell).order_by(t.cells.c.id))
    return [pb.Cell.FromString(data) for data in rows.scalars()]


async def remove_cell(tx: Tx, cell_id: str) -> bool:
    """Forgets a cell; whether it was there."""
    return bool((await tx.execute(t.cells.delete().where(t.cells.c.id == cell_id))).rowcount)


async def add_policy(tx: Tx, policy: StoredPolicy) -> None:
    """Stores a new policy."""
    await tx.execute(t.policies.insert(), [asdict(policy)])


async def change_policy(tx: Tx, policy_id: str, **values: Any) -> bool:
    """Changes columns of a policy that is still training; whether it was."""
    changed = t.policies.update().where(t.policies.c.id == policy_id, t.policies.c.state == "training")
    return bool((await tx.execute(changed.values(**values))).rowcount)


async def find_policy(tx: Tx, policy_id: str) -> StoredPolicy | None:
    """One policy."""
    row = (await tx.execute(sa.select(t.policies).where(t.policies.c.id == policy_id))).mappings().first()
    return None if row is None else StoredPolicy(**row)


async def list_policies(tx: Tx) -> list[StoredPolicy]:
    """All policies, newest first."""
    rows = await tx.execute(sa.select(t.policies).order_by(t.policies.c.created_at.desc(), t.policies.c.id.desc()))
    return [StoredPolicy(**row) for row in rows.mappings()]

"""Plans in the database, and the version that each request received."""

from __future__ import annotations

import sqlalchemy as sa

from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.database.rows import Tx, upsert
from services.topology.tables import plan_keys, plans

# Built once: every round runs these statements, and building costs more than running.
_OF_TASK = sa.select(plans.c.plan).where(plans.c.task_id == sa.bindparam("p_task"))
_VERSION = _OF_TASK.where(plans.c.version == sa.bindparam("p_version"))
_NEWEST = _OF_TASK.order_by(plans.c.version.desc()).limit(sa.literal_column("1"))
_FOR = sa.select(plan_keys.c.version).where(
    plan_keys.c.task_id == sa.bindparam("p_task"), plan_keys.c.key == sa.bindparam("p_key")
)


async def find(tx: Tx, task_id: str, version: int = 0) -> pb.Plan | None:
    """A version of a task's plan; 0 means the newest."""
    result = (await tx.execute(_VERSION if version else _NEWEST, {"p_task": task_id, "p_version": version})).scalar()
    return None if result is None else pb.Plan.FromString(result)


async def find_for(tx: Tx, task_id: str, key: str) -> pb.Plan | None:
    """Return the plan that answered a request with this key."""
    version = (await tx.execute(_FOR, {"p_task": task_id, "p_key": key})).scalar_one_or_none()
    return None if version is None else await find(tx, task_id, version)


async def add(tx: Tx, plan: pb.Plan) -> None:
    """Stores a plan under its version."""
    row = {
        "task_id": plan.task_id,
        "version": plan.version,
        "created_at": plan.created_at,
        "plan": plan.SerializeToString(),
    }
    await tx.execute(plans.insert(), [row])


async def answer_with(tx: Tx, task_id: str, key: str, version: int) -> None:
    """Record that requests with this key receive this version."""
    await upsert(tx, plan_keys, [{"task_id": task_id, "key": key, "version": version}], ["task_id", "key"])

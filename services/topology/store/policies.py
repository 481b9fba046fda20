"""Scheduling policies in the database."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from coterie.records.enums import PolicyState
from services.kit.database.rows import Tx, columns, fetch_all, fetch_one
from services.topology.domain.records import StoredPolicy
from services.topology.tables import policies

_COLUMNS = columns(StoredPolicy, policies)


async def add(tx: Tx, policy: StoredPolicy) -> None:
    """Stores a new policy."""
    await tx.execute(policies.insert(), [asdict(policy)])


async def change(tx: Tx, policy_id: str, **values: Any) -> bool:
    """Change columns of a policy in training; return whether it was still in training."""
    changed = policies.update().where(policies.c.id == policy_id, policies.c.state == PolicyState.TRAINING)
    return bool((await tx.execute(changed.values(**values))).rowcount)


async def find(tx: Tx, policy_id: str) -> StoredPolicy | None:
    """One policy."""
    return await fetch_one(tx, sa.select(*_COLUMNS).where(policies.c.id == policy_id), StoredPolicy)


async def every(tx: Tx) -> list[StoredPolicy]:
    """All policies, newest first."""
    query = sa.select(*_COLUMNS).order_by(policies.c.created_at.desc(), policies.c.id.desc())
    return await fetch_all(tx, query, StoredPolicy)

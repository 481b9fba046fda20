"""Erasing a device in the database: everything about it except its numbers and its id."""

from __future__ import annotations

import sqlalchemy as sa

from coterie.records.enums import DeviceState
from services.kit.database.rows import Tx
from services.trust.domain.pairs import EVIDENCE
from services.trust.tables import (
    devices,
    encounters,
    friendships,
    inheritances,
    interactions,
    keys,
    owner_records,
    owners,
    pairs,
    relations,
    social_version,
    tokens,
)

_NOTHING = {"kind": "", "brand": "", "model": "", "link_class": "", "token_id": ""}
_UNKNOWN = {"seconds_per_sample": 0.0, "seconds_per_megabyte": 0.0, "memory_bytes": 0}
_NOWHERE = {"x_metres": None, "y_metres": None, "signing_key": None, "sealing_key": None}


async def forget_profile(tx: Tx, device_id: str) -> None:
    """Replace a revoked device's name by its id, and delete its profile, public keys and API keys."""
    bare = {"name": device_id, "state": DeviceState.REVOKED, **_NOTHING, **_UNKNOWN, **_NOWHERE}
    await tx.execute(sa.update(devices).where(devices.c.id == device_id).values(bare))
    await tx.execute(sa.delete(keys).where(keys.c.subject == device_id))


async def forget_ties(tx: Tx, device: int) -> None:
    """Delete what a device did with others. The caller holds the lock of `store.social`.

    The rows of its pairs stay, empty, because pair numbers have no gaps.
    """
    own = (pairs.c.low == device) | (pairs.c.high == device)
    numbers = sa.select(pairs.c.number).where(own)
    await tx.execute(sa.delete(interactions).where(interactions.c.pair.in_(numbers)))
    await tx.execute(sa.delete(encounters).where(encounters.c.pair.in_(numbers)))
    await tx.execute(sa.delete(inheritances).where(inheritances.c.pair.in_(numbers)))
    await tx.execute(sa.delete(relations).where((relations.c.low == device) | (relations.c.high == device)))
    next_version = sa.select(social_version.c.version + 1).scalar_subquery()
    await tx.execute(sa.update(pairs).where(own).values({**dict.fromkeys(EVIDENCE, 0), "version": next_version}))
    await tx.execute(sa.update(social_version).values(version=social_version.c.version + 1))


async def is_bare(tx: Tx, owner: int) -> bool:
    """Whether all devices of an owner are erased."""
    named = (devices.c.owner_number == owner) & (devices.c.name != devices.c.id)
    return (await tx.execute(sa.select(devices.c.number).where(named).limit(1))).first() is None


async def forget_owner(tx: Tx, owner: int) -> None:
    """Replace an owner's name by its id, and delete its friendships, records with others and tokens."""
    for table in (friendships, owner_records):
        await tx.execute(sa.delete(table).where((table.c.low == owner) | (table.c.high == owner)))
    await tx.execute(sa.delete(tokens).where(tokens.c.owner_number == owner))
    await tx.execute(sa.update(owners).where(owners.c.number == owner).values(name=owners.c.id, sharing="own"))

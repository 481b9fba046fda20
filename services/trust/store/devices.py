"""Devices in the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from coterie.records.enums import DeviceState
from services.kit.database.rows import Tx, batches, inserting
from services.kit.rpc.paging import Page
from services.trust.domain.records import Capabilities, Device, Location, Profile, PublicKeys
from services.trust.tables import devices, owners

_QUERY = sa.select(devices, owners.c.id.label("owner_id")).join(owners, owners.c.number == devices.c.owner_number)
_BY_IDS = _QUERY.where(devices.c.id.in_(sa.bindparam("ids", expanding=True)))


async def add(tx: Tx, device: Device, owner_number: int) -> bool:
    """Add a device unless its id, signing key or name within its owner is taken; return whether it was added."""
    statement = inserting(tx, devices).on_conflict_do_nothing()
    return bool((await tx.execute(statement, _columns(device, owner_number))).rowcount)


async def add_many(tx: Tx, new: Sequence[tuple[Device, int]]) -> int:
    """Add devices, each with its owner's number, where `add` would; return how many."""
    if not new:
        return 0
    before = await _count(tx)
    statement = inserting(tx, devices).on_conflict_do_nothing()
    await tx.execute(statement, [_columns(device, owner) for device, owner in new])
    return await _count(tx) - before


async def _count(tx: Tx) -> int:
    return int((await tx.execute(sa.select(sa.func.count()).select_from(devices))).scalar_one())


def _columns(device: Device, owner_number: int) -> dict[str, Any]:
    return {
        **_profile_columns(device.profile),
        **_key_columns(device.keys),
        "id": device.id,
        "owner_number": owner_number,
        "key_version": device.key_version,
        "token_id": device.token_id,
        "state": device.state,
        "registered_at": device.registered_at,
        "last_seen_at": device.last_seen_at,
    }


async def by_id(tx: Tx, device_id: str) -> Device | None:
    return await _one(tx, devices.c.id == device_id)


async def by_signing_key(tx: Tx, signing_key: bytes) -> Device | None:
    return await _one(tx, devices.c.signing_key == signing_key)


async def by_name(tx: Tx, owner_number: int, name: str) -> Device | None:
    return await _one(tx, (devices.c.owner_number == owner_number) & (devices.c.name == name))


async def by_ids(tx: Tx, device_ids: Sequence[str]) -> dict[str, Device]:
    """Return the devices among `device_ids` that exist, by id."""
    result: dict[str, Device] = {}
    for part in batches(device_ids):
        result.update((row.id, _device(row)) for row in await tx.execute(_BY_IDS, {"ids": list(part)}))
    return result


async def by_numbers(tx: Tx, numbers: Sequence[int]) -> list[Device]:
    """Return the devices with these numbers, in order of number."""
    result: list[Device] = []
    for part in batches(numbers):
        query = _QUERY.where(devices.c.number.in_(part))
        result.extend(_device(row) for row in await tx.execute(query))
    return sorted(result, key=lambda device: device.number)


async def named(tx: Tx, names: Sequence[str]) -> list[tuple[int, str, int]]:
    """Return number, name and owner's number of every device with one of these names."""
    result: list[tuple[int, str, int]] = []
    for part in batches(names):
        query = sa.select(devices.c.number, devices.c.name, devices.c.owner_number)
        rows = await tx.execute(query.where(devices.c.name.in_(part)))
        result.extend((row.number, row.name, row.owner_number) for row in rows)
    return result


async def numbers_of(tx: Tx, owner_number: int) -> list[int]:
    query = sa.select(devices.c.number).where(devices.c.owner_number == owner_number)
    return list((await tx.execute(query)).scalars())


async def all_numbers(tx: Tx, most: int) -> list[int]:
    """Return the numbers of the first `most` devices."""
    query = sa.select(devices.c.number).order_by(devices.c.number).limit(most)
    return list((await tx.execute(query)).scalars())


async def entries_by_id(tx: Tx, device_ids: Sequence[str]) -> list[tuple[int, str, int]]:
    """Return number, id and owner's number of the devices that exist."""
    return await _entries(tx, devices.c.id, device_ids)


async def entries_by_number(tx: Tx, numbers: Sequence[int]) -> list[tuple[int, str, int]]:
    """Return the same by number."""
    return await _entries(tx, devices.c.number, numbers)


async def _entries(tx: Tx, column: sa.Column[Any], wanted: Sequence[Any]) -> list[tuple[int, str, int]]:
    result: list[tuple[int, str, int]] = []
    for part in batches(wanted):
        query = sa.select(devices.c.number, devices.c.id, devices.c.owner_number)
        rows = await tx.execute(query.where(column.in_(part)))
        result.extend((row.number, row.id, row.owner_number) for row in rows)
    return result


async def page(tx: Tx, wanted: Page, owner_id: str, state: DeviceState) -> list[Device]:
    """List devices in order of id, of one owner and in one state unless these are empty."""
    query = _QUERY.where(devices.c.id > wanted.cursor).order_by(devices.c.id).limit(wanted.limit)
    if owner_id:
        query = query.where(owners.c.id == owner_id)
    if state:
        query = query.where(devices.c.state == state)
    return [_device(row) for row in await tx.execute(query)]


async def set_profile(tx: Tx, device_id: str, profile: Profile) -> None:
    """Replace a device's profile."""
    await tx.execute(sa.update(devices).where(devices.c.id == device_id).values(_profile_columns(profile)))


async def set_keys(tx: Tx, device: Device, keys: PublicKeys, token_id: str) -> bool:
    """Set a device's keys unless they changed since `device` was read; return whether they were set."""
    statement = (
        sa.update(devices)
        .where(devices.c.id == device.id, devices.c.key_version == device.key_version)
        .values(**_key_columns(keys), key_version=device.key_version + 1, token_id=token_id)
    )
    return bool((await tx.execute(statement)).rowcount)


async def revoke(tx: Tx, device_id: str) -> None:
    await tx.execute(sa.update(devices).where(devices.c.id == device_id).values(state=DeviceState.REVOKED))


async def set_last_seen(tx: Tx, seen: Mapping[str, float]) -> None:
    """Store the times of devices' last heartbeats."""
    statement = (
        sa.update(devices)
        .where(devices.c.id == sa.bindparam("device"), devices.c.last_seen_at < sa.bindparam("at"))
        .values(last_seen_at=sa.bindparam("at"))
    )
    await tx.execute(statement, [{"device": device, "at": at} for device, at in seen.items()])


async def _one(tx: Tx, condition: sa.ColumnElement[bool]) -> Device | None:
    row = (await tx.execute(_QUERY.where(condition))).one_or_none()
    return _device(row) if row else None


def _profile_columns(profile: Profile) -> dict[str, Any]:
    place, able = profile.location, profile.capabilities
    return {
        "name": profile.name,
        "kind": profile.kind,
        "brand": profile.brand,
        "model": profile.model,
        "x_metres": place.x_metres if place else None,
        "y_metres": place.y_metres if place else None,
        "seconds_per_sample": able.seconds_per_sample,
        "link_class": able.link_class,
        "seconds_per_megabyte": able.seconds_per_megabyte,
        "memory_bytes": able.memory_bytes,
    }


def _key_columns(keys: PublicKeys) -> dict[str, Any]:
    return {"signing_key": keys.signing or None, "sealing_key": keys.sealing or None}


def _device(row: Any) -> Device:
    return Device(
        number=row.number,
        id=row.id,
        owner_id=row.owner_id,
        profile=Profile(
            name=row.name,
            kind=row.kind,
            brand=row.brand,
            model=row.model,
            location=None if row.x_metres is None else Location(row.x_metres, row.y_metres),
            capabilities=Capabilities(
                row.seconds_per_sample, row.link_class, row.seconds_per_megabyte, row.memory_bytes
            ),
        ),
        keys=PublicKeys(row.signing_key or b"", row.sealing_key or b""),
        state=DeviceState(row.state),
        registered_at=row.registered_at,
        last_seen_at=row.last_seen_at,
        key_version=row.key_version,
        token_id=row.token_id,
    )

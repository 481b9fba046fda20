"""Erasing a device at its owner's request: everything about it goes, its bare id stays in the ledger."""

from __future__ import annotations

from dataclasses import replace

from coterie.records.enums import DeviceState
from services.kit.database.engine import Database
from services.kit.rpc.principal import require_device
from services.kit.runtime.clock import Clock
from services.trust.domain import checks
from services.trust.domain.records import Device, Profile, PublicKeys
from services.trust.store import audit, devices, erasure, owners, pairing, social
from services.trust.usecases.devices import unknown_devices


class Erasure:
    """Erases devices."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def erase(self, device_id: str) -> Device:
        """Revoke a device and erase it, in one transaction; repeating it changes nothing."""
        require_device(device_id)
        async with self._database.writing(offload=True) as tx:
            await social.locked(tx)
            device = await devices.by_id(tx, device_id) if checks.is_id("dev", device_id) else None
            if device is None:
                raise unknown_devices([device_id])
            gone = replace(device, state=DeviceState.REVOKED, token_id="")
            bare = replace(gone, profile=Profile(device_id), keys=PublicKeys())
            if device == bare:
                return bare
            owner = await owners.by_id(tx, device.owner_id)
            await erasure.forget_profile(tx, device_id)
            await erasure.forget_ties(tx, device.number)
            await pairing.forget_device(tx, device_id)
            if owner is not None and await erasure.is_bare(tx, owner.number):
                await erasure.forget_owner(tx, owner.number)
            await audit.note(tx, self._clock.now(), "device.erase", device_id)
        return bare

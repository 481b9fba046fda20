"""Devices: registration, profiles, key rotation, revocation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coterie.records.enums import DeviceState
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.rpc.paging import Page
from services.kit.rpc.principal import NotAllowed, current_principal, require_device, require_role
from services.kit.runtime.clock import Clock
from services.kit.runtime.ids import new_id
from services.trust.domain import checks
from services.trust.domain.records import (
    ApiKey,
    Capabilities,
    Device,
    Location,
    Profile,
    PublicKeys,
    Token,
)
from services.trust.errors import (
    DeviceRevoked,
    InvalidProof,
    InvalidToken,
    KeysChanged,
    NameTaken,
    SigningKeyTaken,
    TokenSpent,
    UnknownDevice,
)
from services.trust.store import audit, devices, keys, social
from services.trust.usecases.credentials import Credential, matches, new_credential, parse, proves
from services.trust.usecases.encounters import MET, Encountering
from services.trust.usecases.heartbeats import Heartbeats
from services.trust.usecases.inheritance import Inheritance


class Devices:
    """The devices of the platform."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        heartbeats: Heartbeats,
        inheritance: Inheritance,
        encountering: Encountering,
    ) -> None:
        self._inheritance = inheritance
        self._encountering = encountering
        self._database = database
        self._clock = clock
        self._heartbeats = heartbeats

    async def register(
        self, token_text: str, profile: Profile, public: PublicKeys, proof: bytes
    ) -> tuple[Device, Credential]:
        """Register a device with an enrolment token; the same token and signing key give it a fresh API key."""
        checks.require_profile(profile)
        checks.require_keys(public.signing, public.sealing)
        if not proves(public.signing, public.sealing, proof):
            raise InvalidProof(
                "proof must be the signature of sealing_key by signing_key; sign it with the private key"
            )
        presented = parse("ct", token_text)
        now, api_key = self._clock.now(), new_credential("ck")
        async with self._database.writing() as tx:
            token = await keys.token_for_update(tx, presented.id) if presented else None
            if presented is None or token is None or not matches(presented, token.digest) or now >= token.expires_at:
                raise InvalidToken("the enrolment token is unknown or expired; ask an admin for a new one")
            device = await self._enrol(tx, token, profile, public, now)
            await keys.revoke_subject(tx, device.id, now)
            row = ApiKey(
                id=api_key.id,
                digest=api_key.digest,
                role="device",
                subject=device.id,
                name=device.profile.name,
                owner_id=device.owner_id,
                created_at=now,
                revoked_at=None,
            )
            await keys.add(tx, row)
            await audit.note(tx, now, "device.register", device.id, f"with {token.id}")
        return device, api_key

    async def _enrol(self, tx: Tx, token: Token, profile: Profile, public: PublicKeys, now: float) -> Device:
        known = await devices.by_signing_key(tx, public.signing)
        if known is not None:
            _check_return(known, token, public)
            if known.token_id != token.id:
                await _spend(tx, token)
            return known
        await _spend(tx, token)
        namesake = await devices.by_name(tx, token.owner_number, profile.name)
        if namesake is not None:
            claimed = await _claim(tx, namesake, token, profile, public)
            await self._moved(tx, namesake, profile)
            return claimed
        device = Device(
            number=0,
            id=new_id("dev"),
            owner_id=token.owner_id,
            profile=profile,
            keys=public,
            state=DeviceState.ACTIVE,
            registered_at=now,
            last_seen_at=0.0,
            key_version=1,
            token_id=token.id,
        )
        await devices.add(tx, device, token.owner_number)
        stored = await devices.by_id(tx, device.id)
        if stored is None:  # another transaction took the name or the key after the check above
            raise NameTaken(f"the name {profile.name!r} or the signing key is taken; register under another name")
        await self._inheritance.hand_down(tx, stored.number, token.owner_number, now)
        return stored

    async def get(self, device_id: str) -> Device:
        """Return one device; a device may read its owner's devices."""
        return (await self.several([device_id]))[0]

    async def several(self, device_ids: Sequence[str]) -> list[Device]:
        """Return devices in the requested order."""
        caller = require_role("admin", "publisher", "device")
        checks.require_at_most("device_ids", len(device_ids), checks.MOST_IDS)
        sound = [device_id for device_id in dict.fromkeys(device_ids) if checks.is_id("dev", device_id)]
        async with self._database.reading() as tx:
            result = await devices.by_ids(tx, sound)
        if caller.role == "device" and any(device.owner_id != caller.owner_id for device in result.values()):
            raise NotAllowed("a device may read only its owner's devices; remove the others")
        unknown = [device_id for device_id in device_ids if device_id not in result]
        if unknown:
            raise unknown_devices(unknown)
        return [self._heartbeats.freshen(result[device_id]) for device_id in device_ids]

    async def page(self, wanted: Page, owner_id: str, state: DeviceState) -> list[Device]:
        """List devices in order of id; a device sees only its owner's."""
        caller = require_role("admin", "publisher", "device")
        checks.require_one_of("state", state, ("", *DeviceState))
        if caller.role == "device" and owner_id not in ("", caller.owner_id):
            raise NotAllowed("a device may list only its owner's devices; omit owner_id")
        owner = caller.owner_id if caller.role == "device" else owner_id
        if owner and not checks.is_id("own", owner):
            return []
        async with self._database.reading() as tx:
            return [self._heartbeats.freshen(item) for item in await devices.page(tx, wanted, owner, state)]

    async def update(self, device_id: str, location: Location | None, capabilities: Capabilities | None) -> Device:
        """Change a profile; None, zero and empty values leave it as it is."""
        require_device(device_id)
        if location is not None:
            checks.require_location(location)
        if capabilities is not None:
            checks.require_capabilities(capabilities)
        async with self._database.writing() as tx:
            device = await _active(tx, device_id)
            profile = replace(
                device.profile,
                location=location or device.profile.location,
                capabilities=_merged(device.profile.capabilities, capabilities or Capabilities()),
            )
            if profile != device.profile:
                await devices.set_profile(tx, device_id, profile)
                await self._moved(tx, device, profile)
                await audit.note(tx, self._clock.now(), "device.update", device_id)
        return self._heartbeats.freshen(replace(device, profile=profile))

    async def _moved(self, tx: Tx, device: Device, profile: Profile) -> None:
        """Recount the meetings of a device that becomes static or mobile, because another rule applies."""
        if (device.profile.location is None) != (profile.location is None):
            await social.locked(tx)
            await self._encountering.recount(tx, MET, self._clock.now(), device.number)

    async def rotate_keys(self, device_id: str, public: PublicKeys, proof: bytes) -> Device:
        """Replace a device's public keys, signed with its old signing key; repeating it changes nothing."""
        require_device(device_id)
        checks.require_keys(public.signing, public.sealing)
        async with self._database.writing() as tx:
            device = await _active(tx, device_id)
            if device.keys == public:
                return self._heartbeats.freshen(device)
            if not proves(device.keys.signing, public.signing + public.sealing, proof):
                raise InvalidProof(
                    "proof must be the signature of the new signing key followed by the new sealing key by the "
                    "device's present signing key"
                )
            holder = await devices.by_signing_key(tx, public.signing)
            if holder is not None and holder.id != device_id:
                raise SigningKeyTaken("another device uses that signing key; create a fresh one")
            if not await devices.set_keys(tx, device, public, device.token_id):
                raise KeysChanged("the device's keys changed since they were read; read the device and rotate again")
            await audit.note(tx, self._clock.now(), "device.rotate", device_id, f"key version {device.key_version + 1}")
        return self._heartbeats.freshen(replace(device, keys=public, key_version=device.key_version + 1))

    async def revoke(self, device_id: str, why: str) -> Device:
        """Stop a device and its API keys at once; repeating it changes nothing."""
        require_device(device_id)
        checks.require_text("why", why, most=500)
        now = self._clock.now()
        async with self._database.writing() as tx:
            device = await _existing(tx, device_id)
            if device.state is not DeviceState.REVOKED:
                await devices.revoke(tx, device_id)
                await keys.revoke_subject(tx, device_id, now)
                await audit.note(tx, now, "device.revoke", device_id, why)
        return self._heartbeats.freshen(replace(device, state=DeviceState.REVOKED))

    async def hear(self, device_ids: Sequence[str]) -> None:
        """Record heartbeats; the database gets them a little later."""
        caller = current_principal()
        if caller.role == "device" and any(device_id != caller.subject for device_id in device_ids):
            raise NotAllowed(f"device {caller.subject} may send heartbeats only for itself; send its own id")
        require_role("admin", "device")
        checks.require_at_most("device_ids", len(device_ids), checks.MOST_IDS)
        await self._heartbeats.hear(device_ids, self._clock.now())


def unknown_devices(device_ids: Sequence[str]) -> UnknownDevice:
    """Return the error that names the unknown devices."""
    named = ", ".join(repr(device_id[:40]) for device_id in device_ids[:10])
    more = f" and {len(device_ids) - 10} more" if len(device_ids) > 10 else ""
    return UnknownDevice(
        f"no device {named}{more}; list the devices, or register it first",
        details={"device_ids": ",".join(device_id[:40] for device_id in device_ids[:100])},
    )


def _check_return(known: Device, token: Token, public: PublicKeys) -> None:
    if known.owner_id != token.owner_id:
        raise SigningKeyTaken("that signing key belongs to a device of another owner; create fresh keys")
    if known.state is DeviceState.REVOKED:
        raise DeviceRevoked("that device was revoked; create fresh keys and register under another name")
    if known.keys != public:
        raise KeysChanged("the device is registered with another sealing key; rotate its keys instead")


async def _claim(tx: Tx, namesake: Device, token: Token, profile: Profile, public: PublicKeys) -> Device:
    """Register an imported device without keys, under its name."""
    if namesake.keys.signing or namesake.state is DeviceState.REVOKED:
        raise NameTaken(f"the owner already has a device named {profile.name!r}; choose another name")
    await devices.set_keys(tx, namesake, public, token.id)
    await devices.set_profile(tx, namesake.id, profile)
    return await _existing(tx, namesake.id)


async def _spend(tx: Tx, token: Token) -> None:
    if token.uses_left < 1:
        raise TokenSpent("the enrolment token has no uses left; ask an admin for a new one")
    await keys.spend_token(tx, token.id)


async def _existing(tx: Tx, device_id: str) -> Device:
    device = await devices.by_id(tx, device_id) if checks.is_id("dev", device_id) else None
    if device is None:
        raise unknown_devices([device_id])
    return device


async def _active(tx: Tx, device_id: str) -> Device:
    device = await _existing(tx, device_id)
    if device.state is DeviceState.REVOKED:
        raise DeviceRevoked(f"device {device_id} was revoked; register a new one")
    return device


def _merged(old: Capabilities, new: Capabilities) -> Capabilities:
    return Capabilities(
        new.seconds_per_sample or old.seconds_per_sample,
        new.link_class or old.link_class,
        new.seconds_per_megabyte or old.seconds_per_megabyte,
        new.memory_bytes or old.memory_bytes,
    )

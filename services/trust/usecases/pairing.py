"""Owners' browsers: links to them, created on a device, and the decisions they sign for it.

The registry relays all of it and is trusted with none: the device checks a browser's key by the link's secret, and
each decision by that key. The checks here only keep strangers from filling tables.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import replace

from coterie.agent.pairing import decision_message, session_message
from coterie.protocol.keys import BadKeys, require_signing_key
from coterie.records.enums import DecisionState, DeviceState
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.rpc.principal import NotAllowed, require_device
from services.kit.runtime.clock import Clock
from services.kit.runtime.ids import new_id
from services.trust.domain import checks
from services.trust.domain.records import ApiKey, Decision, Device, Link
from services.trust.errors import (
    BadSignature,
    DeviceRevoked,
    InvalidField,
    LinkOver,
    TooManyDecisions,
    UnknownDecision,
    UnknownLink,
)
from services.trust.store import audit, devices, keys, pairing
from services.trust.usecases.credentials import Credential, new_credential, proves
from services.trust.usecases.devices import unknown_devices

LIFETIME_SECONDS, MOST_LIFETIME_SECONDS = 600.0, 86_400.0
SESSION_SECONDS = 12 * 3600.0
CLOCKS_APART_SECONDS = 300.0
"""Largest error of a browser's clock, seconds."""
MOST_LINKS = 50
MOST_WAITING, KEPT_DECISIONS = 100, 300
MOST_TEXT, MOST_NOTE_BYTES = 4096, 65_536
_DIGEST_BYTES = 32


class Links:
    """Links of devices to browsers, and the browsers' decisions."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def make(self, device_id: str, token_digest: bytes, lifetime_seconds: float) -> Link:
        """Create a link that one browser may take within its time."""
        _require_itself(device_id)
        if len(token_digest) != _DIGEST_BYTES:
            raise InvalidField(f"token_digest must be a SHA-256 of {_DIGEST_BYTES} bytes, got {len(token_digest)}")
        seconds = checks.require_finite("lifetime_seconds", lifetime_seconds, least=0.0, most=MOST_LIFETIME_SECONDS)
        now = self._clock.now()
        link = Link(new_id("lnk"), device_id, token_digest, now, now + (seconds or LIFETIME_SECONDS))
        async with self._database.writing() as tx:
            await _active(tx, device_id)
            await pairing.drop_stale(tx, device_id, now)
            if len(await pairing.of_device(tx, device_id)) >= MOST_LINKS:
                raise TooManyDecisions(f"the device has {MOST_LINKS} links; end those you no longer use")
            await pairing.add(tx, link)
            await audit.note(tx, now, "link.make", link.id, device_id)
        return link

    async def claim(self, link_id: str, token: bytes, browser_key: bytes, proof: bytes, name: str) -> Link:
        """Give a link to the browser that knows its token; once, and repeatable by the same browser."""
        checks.require_text("name", name)
        if len(proof) != _DIGEST_BYTES:
            raise InvalidField(f"proof must be an HMAC of {_DIGEST_BYTES} bytes, got {len(proof)}")
        try:
            require_signing_key(browser_key)
        except BadKeys as error:
            raise InvalidField(f"browser_key: {error}") from error
        now = self._clock.now()
        async with self._database.writing() as tx:
            link = await pairing.by_id(tx, link_id, lock=True) if checks.is_id("lnk", link_id) else None
            if link is None or not hmac.compare_digest(hashlib.sha256(token).digest(), link.token_digest):
                raise UnknownLink("the link does not exist or was ended; create a new one on the device")
            if link.claimed_at:
                if (link.browser_key, link.proof) != (browser_key, proof):
                    raise LinkOver("another browser has taken this link; create a new one on the device")
                return link
            if now >= link.expires_at:
                raise LinkOver("the link has expired; create a new one on the device")
            await _active(tx, link.device_id)
            taken = {"claimed_at": now, "name": name, "browser_key": browser_key, "proof": proof}
            await pairing.change(tx, link_id, **taken)
            await audit.note(tx, now, "link.claim", link_id, link.device_id)
        return replace(link, claimed_at=now, name=name, browser_key=browser_key, proof=proof)

    async def begin_session(self, link_id: str, at_milliseconds: int, signature: bytes) -> tuple[ApiKey, Credential]:
        """Create an API key for the browser of a link, which signed the request now; end its earlier ones."""
        now, secret = self._clock.now(), new_credential("ck")
        async with self._database.writing() as tx:
            link = await pairing.by_id(tx, link_id, lock=True) if checks.is_id("lnk", link_id) else None
            if link is None or not link.claimed_at:
                raise UnknownLink("the link no longer exists; create a new one on the device")
            if not proves(link.browser_key, session_message(link_id, at_milliseconds), signature):
                raise BadSignature("not signed by the browser of that link; create a new link on the device")
            if abs(at_milliseconds / 1000.0 - now) > CLOCKS_APART_SECONDS:
                raise BadSignature("the browser's clock is more than five minutes off; set it, and sign in again")
            if at_milliseconds <= link.signed_in_milliseconds:
                raise BadSignature("this sign-in was already used; sign in again")
            device = await _active(tx, link.device_id)
            await pairing.change(tx, link_id, signed_in_milliseconds=at_milliseconds)
            await pairing.drop_keys(tx, link_id)
            key = _session_key(secret, device, link_id, now)
            await keys.add(tx, key)
            await audit.note(tx, now, "link.session", link_id, device.id)
        return key, secret

    async def list(self, device_id: str) -> list[Link]:
        """List a device's links, newest first."""
        require_device(device_id)
        async with self._database.reading() as tx:
            return await pairing.of_device(tx, device_id)

    async def end(self, device_id: str, link_id: str) -> None:
        """End a link; repeating it changes nothing."""
        require_device(device_id)
        async with self._database.writing() as tx:
            link = await _link(tx, device_id, link_id)
            if link is not None:
                await pairing.drop(tx, link_id)
                await audit.note(tx, self._clock.now(), "link.end", link_id, device_id)

    async def put_note(self, device_id: str, link_id: str, note: bytes) -> None:
        """Store a device's note for the browser of a link."""
        _require_itself(device_id)
        checks.require_at_most("bytes of a note", len(note), MOST_NOTE_BYTES)
        async with self._database.writing() as tx:
            if await _link(tx, device_id, link_id) is None:
                raise UnknownLink("this device has no such link any more; forget it")
            await pairing.change(tx, link_id, note=note)

    async def decide(self, device_id: str, link_id: str, text: str, signature: bytes) -> Decision:
        """Relay a decision that the browser of a link signed."""
        _require_itself(device_id)
        if not 0 < len(text) <= MOST_TEXT:
            raise InvalidField(f"text must have 1 to {MOST_TEXT} characters, got {len(text)}")
        now = self._clock.now()
        decision = Decision(
            id=new_id("dcn"), device_id=device_id, link_id=link_id, at=now, text=text, signature=signature
        )
        async with self._database.writing() as tx:
            link = await _link(tx, device_id, link_id)
            if link is None or not link.claimed_at:
                raise UnknownLink("this device has no such link any more; create a new one on the device")
            if not proves(link.browser_key, decision_message(text), signature):
                raise BadSignature("the decision is not signed by the browser of that link; the device would refuse it")
            if await pairing.waiting_count(tx, device_id) >= MOST_WAITING:
                raise TooManyDecisions(
                    f"{MOST_WAITING} decisions wait for this device; start it (`coterie device run`) and retry"
                )
            await pairing.drop_answered(tx, device_id, KEPT_DECISIONS)
            await pairing.add_decision(tx, decision)
        return decision

    async def decisions(self, device_id: str, waiting: bool, limit: int) -> Sequence[Decision]:
        """List a device's decisions."""
        require_device(device_id)
        async with self._database.reading() as tx:
            return await pairing.decisions_of(tx, device_id, waiting, limit)

    async def answer(self, device_id: str, decision_id: str, state: DecisionState, note: str) -> Decision:
        """Store the device's answer to a decision; the first answer stands."""
        _require_itself(device_id)
        checks.require_one_of("state", state, (DecisionState.DONE, DecisionState.REFUSED))
        checks.require_text("note", note, most=500)
        async with self._database.writing() as tx:
            await pairing.answer(tx, decision_id, state, note)
            result = await pairing.decision(tx, device_id, decision_id)
            if result is None:
                raise UnknownDecision("this device has no such decision; list the waiting ones")
        return result


def _require_itself(device_id: str) -> None:
    """Allow the device and its browsers only: no admin links, decides or answers in an owner's name."""
    caller = require_device(device_id)
    if caller.role == "admin":
        raise NotAllowed("only the owner may do this, from the device or a browser linked to it; an admin may not")


def _session_key(secret: Credential, device: Device, link_id: str, now: float) -> ApiKey:
    end = now + SESSION_SECONDS
    name = device.profile.name
    return ApiKey(
        id=secret.id,
        digest=secret.digest,
        role="device",
        subject=device.id,
        name=name,
        owner_id=device.owner_id,
        created_at=now,
        revoked_at=None,
        expires_at=end,
        link_id=link_id,
    )


async def _link(tx: Tx, device_id: str, link_id: str) -> Link | None:
    result = await pairing.by_id(tx, link_id) if checks.is_id("lnk", link_id) else None
    return result if result is not None and result.device_id == device_id else None


async def _active(tx: Tx, device_id: str) -> Device:
    device = await devices.by_id(tx, device_id)
    if device is None:
        raise unknown_devices([device_id])
    if device.state is DeviceState.REVOKED:
        raise DeviceRevoked(f"device {device_id} was revoked; register a new one")
    return device

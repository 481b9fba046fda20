"""Pairing a device with its owner's browsers: how a browser's key reaches the device, and what it may sign.

    link     The device makes 32 secret bytes. They reach the browser in the fragment of the link's address (behind
             the #), which browsers never send.
    key      The browser makes an Ed25519 key that cannot leave it, and hands over its public half with a proof: an
             HMAC under the secret, which no relay can make for another key.
    decision A JSON text signed by that key. The device accepts no other instruction of its owner from outside.
    note     A message of the device to its owner, sealed for that browser: the platform stores it and cannot read it.

The platform relays all of it. It can lose or delay messages; it cannot decide in an owner's name.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import os
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from coterie.protocol.keys import BadKeys, require_signing_key
from coterie.records import BrowserLink, Decision, TaskSpecification

Act = Literal["join", "refuse", "pause", "resume"]
SECRET_BYTES = 32
_NONCE_BYTES = _BLOCK_BYTES = 32
_LATEST = 1 << 53
_SOUND_LINK = re.compile(r"lnk_[0-9a-z]{1,64}")


class BadLink(Exception):
    """A link that cannot be used, or a browser's key that came without the link's proof."""


class Disbelieved(Exception):
    """A decision that this device's owner did not make, or not for it, or not now."""


def session_message(link_id: str, at_milliseconds: int) -> bytes:
    """Return what a browser signs to open a session."""
    return f"coterie session 1\n{link_id}\n{at_milliseconds}".encode()


def decision_message(text: str) -> bytes:
    """What a browser signs when its owner decides."""
    return f"coterie decision 1\n{text}".encode()


@dataclass(frozen=True, slots=True, repr=False)
class LinkSecret:
    """A secret of the device and one browser; tokens, proofs and keys derive from it."""

    secret: bytes

    @classmethod
    def fresh(cls) -> LinkSecret:
        """A new one."""
        return cls(os.urandom(SECRET_BYTES))

    @property
    def token(self) -> bytes:
        """With it a browser takes the link."""
        return self._derived(b"token")

    @property
    def token_digest(self) -> bytes:
        """Digest of the token, which the platform stores."""
        return hashlib.sha256(self.token).digest()

    @property
    def sealing(self) -> bytes:
        """Key of the notes for this browser."""
        return self._derived(b"note")

    def proof(self, browser_key: bytes) -> bytes:
        """What comes with the browser's key."""
        return self._derived(b"key " + browser_key)

    def address(self, console_url: str, link_id: str) -> str:
        """What the owner opens in the browser."""
        secret = base64.urlsafe_b64encode(self.secret).decode("ascii").rstrip("=")
        return f"{console_url.rstrip('/')}/link#{link_id}.{secret}"

    def pinned(self, link: BrowserLink) -> Browser:
        """The browser that took a link, if it knew the secret; raises `BadLink` otherwise."""
        if not hmac.compare_digest(self.proof(link.browser_key), link.proof):
            raise BadLink(
                "the key that came for this link was not made by its holder: an attacker between this "
                "device and your browser put in another. Nothing was linked; ask who runs the platform, and "
                "use another console"
            )
        try:
            require_signing_key(link.browser_key)
        except BadKeys as error:
            raise BadLink(f"the browser's key cannot be used: {error}") from error
        if not _SOUND_LINK.fullmatch(link.id):  # files are named after it
            raise BadLink(f"{link.id[:40]!r} is not a link id; do not use this platform")
        return Browser(link.id, link.name, link.claimed_at, link.browser_key.hex(), self.sealing.hex())

    def _derived(self, label: bytes) -> bytes:
        return hmac.new(self.secret, b"coterie link 1 " + label, hashlib.sha256).digest()


@dataclass(frozen=True, slots=True)
class Browser:
    """A browser whose decisions the device believes: its link, its name, and its keys in hexadecimal."""

    link: str
    name: str
    linked_at: float
    key: str
    sealing: str

    def __repr__(self) -> str:
        """Without the key of the notes."""
        return f"Browser({self.link}, {self.name!r})"

    @classmethod
    def read(cls, content: bytes) -> Browser:
        """From its file; raises `BadLink`."""
        try:
            result = cls(**json.loads(content))
            require_signing_key(bytes.fromhex(result.key))
            bytes.fromhex(result.sealing)
        except (ValueError, TypeError, BadKeys) as error:
            raise BadLink(f"this is not a linked browser ({error}); remove the file, and link it again") from error
        return result

    def written(self) -> bytes:
        """For its file."""
        return json.dumps(asdict(self), indent=2).encode()

    def seal(self, note: dict[str, Any]) -> bytes:
        """A note for this browser alone."""
        return seal(bytes.fromhex(self.sealing), json.dumps(note, sort_keys=True).encode())


@dataclass(frozen=True, slots=True)
class Choice:
    """What an owner decided: an act, for one device, numbered by the browser, good until a moment.

    Attributes:
        terms: of a task to join, the digest of what the owner was shown (`terms_of`).
    """

    act: Act
    device: str
    link: str
    number: int
    until: float
    task: str = ""
    terms: str = ""

    def __post_init__(self) -> None:
        texts = (self.act, self.device, self.link, self.task, self.terms)
        if not all(isinstance(text, str) for text in texts) or self.act not in get_args(Act):
            raise ValueError(f"an act is one of {', '.join(get_args(Act))}")
        if type(self.number) is not int or not 0 < self.number < _LATEST:
            raise ValueError("a number is above 0")
        if type(self.until) not in (int, float) or not math.isfinite(self.until):
            raise ValueError("until is a time")
        if bool(self.task) != (self.act in ("join", "refuse")) or bool(self.terms) != (self.act == "join"):
            raise ValueError("joining names a task and its terms, refusing a task, anything else neither")


def judge(decision: Decision, browser: Browser | None, device_id: str, last_number: int, now: float) -> Choice:
    """What a decision says, if its owner's browser signed it for this device, later than the last one, and in time."""
    if browser is None or browser.link != decision.link_id:
        raise Disbelieved("it comes from a browser that was never linked on this device")
    try:
        VerifyKey(bytes.fromhex(browser.key)).verify(decision_message(decision.text), decision.signature)
    except (BadSignatureError, ValueError) as error:
        raise Disbelieved("it was not signed by the linked browser") from error
    try:
        choice = Choice(**json.loads(decision.text))
    except (ValueError, TypeError) as error:
        raise Disbelieved(f"it cannot be understood ({error}); is this device's software older than the page?") from (
            error
        )
    if choice.device != device_id or choice.link != browser.link:
        raise Disbelieved("it was signed for another device or link")
    if choice.number <= last_number:
        raise Disbelieved("it was heard before, or is older than one that was")
    if now > choice.until:
        raise Disbelieved("it came too late; decide again")
    return choice


def terms_of(task_id: str, specification: TaskSpecification) -> str:
    """Digest of what an owner is shown of a task before joining: what is learnt, how it is hidden, what it pays.

    The device makes it again from what the platform tells it, so that an owner cannot see one task and join another.
    """
    s = specification
    shown = {
        "task": task_id,
        "name": s.name,
        "description": s.description,
        "topology": s.topology,
        "privacy": s.privacy,
        "privacy_unit": s.privacy_unit,
        "training": s.training,
        "incentive": s.incentive,
        "rounds": s.rounds,
        "escrow_microcredits": s.escrow_microcredits,
        "parameters": s.parameters,
    }
    text = json.dumps(shown, sort_keys=True, separators=(",", ":"), allow_nan=False, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()


def seal(key: bytes, content: bytes) -> bytes:
    """Content that only holders of the key can read or make: nonce, ciphertext, tag.

    HMAC-SHA256 is the keystream (of nonce and counter, under one key) and the tag (under another): what browsers and
    the standard library both have.
    """
    nonce = os.urandom(_NONCE_BYTES)
    hidden = _stream(key, nonce, content)
    return nonce + hidden + _tag(key, nonce + hidden)


def unseal(key: bytes, sealed: bytes) -> bytes:
    """The content of what `seal` made; raises `BadLink` if anybody changed it."""
    body, tag = sealed[:-_BLOCK_BYTES], sealed[-_BLOCK_BYTES:]
    if len(sealed) < _NONCE_BYTES + _BLOCK_BYTES or not hmac.compare_digest(_tag(key, body), tag):
        raise BadLink("this note is not from the device, or was changed on its way")
    return _stream(key, body[:_NONCE_BYTES], body[_NONCE_BYTES:])


def _stream(key: bytes, nonce: bytes, content: bytes) -> bytes:
    hiding = hmac.new(key, b"hide", hashlib.sha256).digest()
    blocks = range(-(-len(content) // _BLOCK_BYTES))
    stream = b"".join(hmac.new(hiding, nonce + at.to_bytes(4, "big"), hashlib.sha256).digest() for at in blocks)
    return bytes(a ^ b for a, b in zip(content, stream, strict=False))


def _tag(key: bytes, body: bytes) -> bytes:
    return hmac.new(hmac.new(key, b"tag", hashlib.sha256).digest(), body, hashlib.sha256).digest()

"""The terms of a sum: the document that devices, clerks and platform bind to, and the messages that they sign.

The digest T of the terms is part of every seed's commitment, every mask, every letter and every signature, so messages
made under different terms never match.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nacl.exceptions import CryptoError
from nacl.signing import VerifyKey

from coterie.secure_sums import canonical
from coterie.secure_sums.canonical import NotCanonical
from coterie.secure_sums.grid import Grid, grid_at
from coterie.secure_sums.masks import check_committee, commit_quorum, digest, held_shares

FORMAT = "coterie-sum-1"
_SESSION_KEY = "sitting"
"""Key of the session number in signed documents."""
KEY_BYTES, DIGEST_BYTES, SIGNATURE_BYTES = 32, 32, 64
MOST_ELEMENTS = 1 << 32
MOST_ID = 200
_REAL = re.compile(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?", re.ASCII)
_CLERK: dict[str, type] = dict.fromkeys(("device", "owner", "signing_key", "session_key", "signature"), str)


class BadTerms(Exception):
    """Terms, or a list that belongs to them, that are invalid."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One sum of one task: (round, session_number) ascend; cohorts stand side by side."""

    task: str
    cohort: int
    round: int
    session_number: int


@dataclass(frozen=True, slots=True)
class NamedClerk:
    """A clerk as the terms name it: its identity, the key of this session and its signature of that key."""

    device: str
    owner: str
    signing_key: bytes
    session_key: bytes
    signature: bytes

    def to_dict(self) -> dict[str, str]:
        """The clerk's entry in the document."""
        keys = {name: getattr(self, name).hex() for name in ("signing_key", "session_key", "signature")}
        return {"device": self.device, "owner": self.owner, **keys}


@dataclass(frozen=True)
class Terms:
    """Terms of one sum. Reals stay the text that the platform wrote, because its bytes were hashed.

    Attributes:
        task, round, session_number, cohort, plan_version: where the sum stands.
        model: digest of the model the updates start from.
        elements, bits, scale: d, b and the bits after the point.
        count, least, honest: n participants, the least survivors, the honest among them (h).
        clip_norm, noise_multiplier, heaviest: reals ≥ 0 in text.
        participants: digest of the list of participants.
        threshold, quorum: t, and q clerks that must commit.
        clerks: by position.
    """

    task: str
    round: int
    session_number: int
    cohort: int
    plan_version: int
    model: str
    elements: int
    bits: int
    scale: int
    count: int
    least: int
    honest: int
    clip_norm: str
    noise_multiplier: str
    heaviest: str
    participants: str
    threshold: int
    quorum: int
    clerks: tuple[NamedClerk, ...]

    @classmethod
    def read(cls, text: str) -> Terms:
        """Parse the canonical text; `BadTerms` unless the terms are consistent."""
        try:
            document = canonical.fields(canonical.decode(text), _KINDS, "terms")
            if document.pop("format") != FORMAT:
                raise NotCanonical(f"the terms are not of the format {FORMAT}; update this device")
            clerks = tuple(_clerk(entry) for entry in document.pop("clerks"))
        except NotCanonical as error:
            raise BadTerms(str(error)) from error
        terms = cls(clerks=clerks, session_number=document.pop(_SESSION_KEY), **document)
        terms._check()
        return terms

    @cached_property
    def text(self) -> str:
        """The canonical text."""
        special = ("format", "clerks", _SESSION_KEY)
        document: dict[str, Any] = {name: getattr(self, name) for name in _KINDS if name not in special}
        document |= {_SESSION_KEY: self.session_number, "format": FORMAT}
        return canonical.encode({**document, "clerks": [clerk.to_dict() for clerk in self.clerks]})

    @cached_property
    def digest(self) -> bytes:
        """T."""
        return digest(self.text.encode())

    @property
    def place(self) -> Place:
        """Where the sum stands."""
        return Place(self.task, self.cohort, self.round, self.session_number)

    @property
    def noise(self) -> float:
        """The noise multiplier z of the sum; 0 without noise."""
        return float(self.noise_multiplier)

    @cached_property
    def shares(self) -> int:
        """K."""
        return math.comb(len(self.clerks), self.threshold - 1)

    def grid(self) -> Grid:
        """The grid of a sum with noise."""
        return grid_at(
            self.bits,
            self.scale,
            elements=self.elements,
            clip_norm=float(self.clip_norm),
            multiplier=self.noise,
            honest=self.honest,
        )

    def position(self, device: str) -> int | None:
        """Return a device's position among the clerks; None for other devices."""
        return next((at for at, clerk in enumerate(self.clerks) if clerk.device == device), None)

    def held(self, position: int) -> list[int]:
        """Shares the clerk at a position holds, ascending."""
        return held_shares(len(self.clerks), self.threshold, position)

    def _check(self) -> None:
        """Raise `BadTerms` unless the fields are consistent with each other."""
        try:
            check_committee(len(self.clerks), self.threshold)
            canonical.hexadecimal(self.model, DIGEST_BYTES, "the model's digest")
            canonical.hexadecimal(self.participants, DIGEST_BYTES, "the participants' digest")
        except (ValueError, NotCanonical) as error:
            raise BadTerms(str(error)) from error
        if self.quorum != commit_quorum(len(self.clerks), self.threshold):
            raise BadTerms(f"a quorum of {self.quorum} clerks does not keep two sets of survivors apart")
        for name in ("device", "owner", "signing_key", "session_key"):
            if len({getattr(clerk, name) for clerk in self.clerks}) < len(self.clerks):
                raise BadTerms(f"two clerks have the same {name.replace('_', ' ')}")
        if any(_real(getattr(self, name)) is None for name in ("clip_norm", "noise_multiplier", "heaviest")):
            raise BadTerms("the terms' reals must be finite and at least 0")
        if self.round < 1 or self.session_number < 1 or self.cohort < 0 or self.plan_version < 0:
            raise BadTerms("rounds and sessions count from 1, cohorts from 0")
        if self.bits not in (32, 64) or not 1 <= self.elements <= MOST_ELEMENTS or abs(self.scale) > 1_000:
            raise BadTerms("the terms' bits, elements or scale are out of range")
        if not 3 <= self.least <= self.count or not 1 <= self.honest <= self.least - (self.threshold - 1):
            raise BadTerms("the terms' least, honest and count contradict each other")


_KINDS: dict[str, type] = {
    "format": str,
    "clerks": list,
    **{
        _SESSION_KEY if field.name == "session_number" else field.name: str if field.type == "str" else int
        for field in dataclasses.fields(Terms)
        if field.name != "clerks"
    },
}


def _clerk(entry: Any) -> NamedClerk:
    values = canonical.fields(entry, _CLERK, "a clerk")
    return NamedClerk(
        values["device"],
        values["owner"],
        canonical.hexadecimal(values["signing_key"], KEY_BYTES, "a clerk's signing key"),
        canonical.hexadecimal(values["session_key"], KEY_BYTES, "a clerk's session key"),
        canonical.hexadecimal(values["signature"], SIGNATURE_BYTES, "a clerk's signature"),
    )


def _real(text: str) -> float | None:
    value = float(text) if _REAL.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None


# --- participants -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Participants:
    """The participants of a sum with their signing keys; the terms hold the digest of `text`."""

    text: str
    keys: Mapping[str, bytes]

    @classmethod
    def read(cls, text: str) -> Participants:
        """Parse the canonical list [[device id, signing key], …] by id; `BadTerms` if it is not one."""
        try:
            rows = canonical.rows(canonical.decode(text), (str, str), "participants")
            keys = {device: canonical.hexadecimal(key, KEY_BYTES, "a participant's key") for device, key in rows}
        except NotCanonical as error:
            raise BadTerms(str(error)) from error
        if any(not 1 <= len(device) <= MOST_ID for device in keys):
            raise BadTerms(f"a participant's id has 1 to {MOST_ID} characters")
        return cls(text, keys)

    @classmethod
    def of(cls, keys: Mapping[str, bytes]) -> Participants:
        """List these devices."""
        listed = sorted(keys, key=str.encode)
        return cls(canonical.encode([[device, keys[device].hex()] for device in listed]), dict(keys))

    def without(self, devices: Collection[str]) -> Participants:
        """List the others."""
        return Participants.of({device: key for device, key in self.keys.items() if device not in devices})

    @cached_property
    def digest(self) -> str:
        """Hexadecimal SHA-256 of the list."""
        return digest(self.text.encode()).hex()

    @cached_property
    def key_digests(self) -> Mapping[str, bytes]:
        """SHA-256 of each device's signing key; letters name company by it."""
        return {device: digest(key) for device, key in self.keys.items()}

    def check(self, terms: Terms) -> None:
        """Raise `BadTerms` unless the terms were made for these participants."""
        if self.digest != terms.participants or len(self.keys) != terms.count:
            raise BadTerms("the list of participants is not the one the terms were made for")


# --- what is signed ---------------------------------------------------------------------------------------------------


def offer_message(place: Place, device: str, session_key: bytes) -> bytes:
    """The message that a clerk signs to offer a session key."""
    document = {
        "task": place.task,
        "round": place.round,
        _SESSION_KEY: place.session_number,
        "cohort": place.cohort,
        "device": device,
        "session_key": session_key.hex(),
    }
    return b"coterie clerk offer 1\n" + canonical.encode(document).encode()


def upload_message(terms: bytes, device: str, masked_digest: bytes, root: bytes, letter_key: bytes) -> bytes:
    """The message that a device signs about its masked words, its seeds and its letter key."""
    return b"coterie sum upload 1\n" + terms + digest(device.encode()) + masked_digest + root + letter_key


def survivors_digest(terms: bytes, survivors: Sequence[tuple[str, bytes]]) -> bytes:
    """D of the survivors, given by id as (device, root)."""
    names = [device.encode() for device, _ in survivors]
    return digest(
        b"coterie survivors 1\n",
        terms,
        *(len(name).to_bytes(2, "big") + name + root for name, (_, root) in zip(names, survivors, strict=True)),
    )


def commit_message(terms: bytes, survivors: bytes) -> bytes:
    """The message that a clerk signs to commit to the survivors D."""
    return b"coterie sum agree 1\n" + terms + survivors


def answer_message(terms: bytes, survivors: bytes, share_digests: Mapping[int, bytes]) -> bytes:
    """The message that a clerk signs about its share sums, by their digests."""
    digests = b"".join(share.to_bytes(4, "big") + share_digests[share] for share in sorted(share_digests))
    return b"coterie share sums 1\n" + terms + survivors + digests


def signed_by(signing_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature of the message is this identity's."""
    try:
        VerifyKey(signing_key).verify(message, signature)
    except (CryptoError, ValueError, TypeError):
        return False
    return True

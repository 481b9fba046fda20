"""The circle: the owner's list of the devices it knows, by their keys. The platform cannot change it.

Stored as `circle.json` in the device's home, mode 0600. To add a member, the owner compares its fingerprint with the
one that the member's owner reads out: in hexadecimal, in words, or as the text of a QR code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from coterie.privacy.files import refuse_wide_permissions, write_private_file
from coterie.protocol.keys import BadKeys, require_signing_key
from coterie.secure_sums import canonical
from coterie.secure_sums.canonical import NotCanonical

Mode = Literal["pinned", "first-use"]
Count = Literal["assume", "company"]

_FORMAT = "coterie-circle-1"
_KEY_BYTES = 32
_FINGERPRINT_BYTES = 16
_STARTS = "bdfghjklmnprstvz"
_VOWELS = "aiou"


class BadCircle(Exception):
    """A circle cannot be read, or a change to it is invalid."""


@dataclass(frozen=True, slots=True)
class Member:
    """A device the owner knows: its signing key and whose it is."""

    signing_key: bytes
    owner: str


@dataclass(frozen=True, slots=True)
class Circle:
    """The devices that the owner knows, and its requirements for a sum.

    Attributes:
        members: devices whose fingerprint the owner compared, by id.
        seen: clerks whose keys were stored at first sight; unverified, and never company.
        mode: "pinned" accepts members only; "first-use" also stores the key of a clerk seen for the first time.
        strangers: accepted clerks outside the circle (never more than t − 1).
        smallest_sum: the fewest survivors that a sum must have.
        company_least: members that must be in the sum too.
        count: whose noise counts: "assume" that of the terms' honest devices, "company" that of named company only.
        secure_only: whether tasks with clear sums are declined.
        clerk: whether this device serves as a clerk of other devices' sums.
        names_clerks: whether joining a task names the members that this device accepts as clerks.
    """

    members: Mapping[str, Member] = field(default_factory=dict)
    seen: Mapping[str, Member] = field(default_factory=dict)
    mode: Mode = "pinned"
    strangers: int = 0
    smallest_sum: int = 3
    company_least: int = 0
    count: Count = "assume"
    secure_only: bool = False
    clerk: bool = True
    names_clerks: bool = False

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode) or self.count not in get_args(Count):
            raise BadCircle(f"mode is pinned or first-use and count assume or company, got {self.mode}, {self.count}")
        for name, least, most in (("strangers", 0, 6), ("smallest_sum", 3, 1 << 31), ("company_least", 0, 64)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise BadCircle(f"{name} is a whole number from {least} to {most}, got {value!r}")
        for name in ("secure_only", "clerk", "names_clerks"):
            if type(getattr(self, name)) is not bool:
                raise BadCircle(f"{name} is true or false, got {getattr(self, name)!r}")

    @property
    def takes_named_clerks_only(self) -> bool:
        """Whether joining a task names this device's clerks: it names none if it also accepts others."""
        return self.names_clerks and self.mode == "pinned" and self.strangers == 0

    @classmethod
    def load(cls, path: Path) -> Circle:
        """Load the circle from a file that only its owner may read; an empty one without a file."""
        try:
            refuse_wide_permissions(path)
            content = json.loads(path.read_bytes())
            if content.pop("format") != _FORMAT:
                raise ValueError("another format")
            members, seen = _members(content.pop("members")), _members(content.pop("seen"))
            return cls(members, seen, **content)
        except FileNotFoundError:
            return cls()
        except (ValueError, KeyError, TypeError, AttributeError, NotCanonical, BadCircle) as error:
            raise BadCircle(
                f"{path} is not a circle ({error}); restore it, or move it away and add its members again"
            ) from error

    def save(self, path: Path) -> None:
        """Write the file and flush it to disk."""
        people = {name: _to_dict(getattr(self, name)) for name in ("members", "seen")}
        rest = {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.name not in people}
        write_private_file(path, json.dumps({"format": _FORMAT, **people, **rest}, indent=2).encode(), replace=True)

    def with_member(self, device: str, signing_key: bytes, owner: str) -> Circle:
        """Add a member with a compared fingerprint; a known id with another key must be removed first."""
        if len(signing_key) != _KEY_BYTES or not device or not owner:
            raise BadCircle("a member has an id, a signing key of 32 bytes and an owner")
        known = self.members.get(device)
        if known is not None and known.signing_key != signing_key:
            raise BadCircle(f"{device} is in the circle with another key; remove it first if it really has a new one")
        rest = {name: member for name, member in self.seen.items() if name != device}
        return dataclasses.replace(self, members={**self.members, device: Member(signing_key, owner)}, seen=rest)

    def without(self, device: str) -> Circle:
        """Remove a member or a clerk seen before."""
        if device not in self.members and device not in self.seen:
            raise BadCircle(f"{device} is not in the circle")
        members, seen = (
            {name: member for name, member in people.items() if name != device} for people in (self.members, self.seen)
        )
        return dataclasses.replace(self, members=members, seen=seen)

    def having_seen(self, clerks: Mapping[str, Member]) -> Circle:
        """Add the unverified keys of clerks seen for the first time."""
        fresh = {name: clerk for name, clerk in clerks.items() if name not in self.members and name not in self.seen}
        return dataclasses.replace(self, seen={**self.seen, **fresh}) if fresh else self


def fingerprint_words(signing_key: bytes) -> str:
    """Return the fingerprint (128 bits) as eight words of five letters, to read aloud.

    Each word is a proquint: 16 bits as consonant, vowel, consonant, vowel, consonant.
    """
    bits = hashlib.sha256(signing_key).digest()[:_FINGERPRINT_BYTES]
    return " ".join(_word(int.from_bytes(bits[at : at + 2], "big")) for at in range(0, _FINGERPRINT_BYTES, 2))


def invitation(device: str, signing_key: bytes, owner: str) -> str:
    """Make the text with which another owner can add this device: id, owner and whole key."""
    return "coterie:circle?" + canonical.encode({"device": device, "owner": owner, "signing_key": signing_key.hex()})


def read_invitation(text: str) -> tuple[str, Member]:
    """Parse an `invitation` into device and member."""
    prefix = "coterie:circle?"
    try:
        if not text.startswith(prefix):
            raise NotCanonical(f"it does not start with {prefix}")
        kinds: dict[str, type] = {"device": str, "owner": str, "signing_key": str}
        document = canonical.fields(canonical.decode(text[len(prefix) :]), kinds, "an invitation")
        key = canonical.hexadecimal(document["signing_key"], _KEY_BYTES, "its key")
        require_signing_key(key)
        return document["device"], Member(key, document["owner"])
    except (NotCanonical, BadKeys) as error:
        raise BadCircle(f"this is not an invitation into a circle ({error}); ask for it again") from error


def _word(bits: int) -> str:
    return "".join(
        (_STARTS[bits >> shift & 15] if wide else _VOWELS[bits >> shift & 3])
        for shift, wide in ((12, True), (10, False), (6, True), (4, False), (0, True))
    )


def _members(content: Any) -> dict[str, Member]:
    return {
        str(device): Member(canonical.hexadecimal(entry["signing_key"], _KEY_BYTES, "a key"), str(entry["owner"]))
        for device, entry in content.items()
    }


def _to_dict(people: Mapping[str, Member]) -> dict[str, dict[str, str]]:
    return {name: {"signing_key": member.signing_key.hex(), "owner": member.owner} for name, member in people.items()}

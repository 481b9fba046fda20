"""Owners, devices, keys, the audit log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from coterie.records.base import Key, Record
from coterie.records.enums import DecisionState, DeviceState, PrincipalRole


@dataclass(frozen=True, slots=True, kw_only=True)
class Me(Record):
    """Whom the key used speaks for."""

    role: Literal["admin", "publisher", "device"]
    subject: str
    """Device's id for devices, `adm_…` or `pub_…` otherwise."""
    name: str
    owner_id: str
    """Owner's id, for devices; empty otherwise."""
    key_id: str
    link_id: str = ""
    """Link of the browser that the key was given to; empty for every other key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner(Record):
    """A person or organisation with devices."""

    id: str
    name: str
    created_at: float
    sharing: str
    """What others may see of its devices' ties: "own", "owners" or "all"."""
    public: bool = False
    """A municipality or the like: its moving devices meet others by the rule for public vehicles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token(Record):
    """An enrolment token; the secret is shown this once."""

    id: str
    token: str = field(repr=False)
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Location(Record):
    """A position on a plane, in metres from the deployment's origin."""

    x_metres: float
    y_metres: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities(Record):
    """What a device can do; zero or absent means unknown."""

    seconds_per_sample: float
    """Seconds to train on one sample."""
    link_class: str
    """"wifi", "lora", "bluetooth", "cellular", "ethernet" or ""."""
    seconds_per_megabyte: float
    """Seconds to transfer one megabyte to the platform."""
    memory_bytes: int
    """Memory it may use for training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device(Record):
    """A device."""

    id: str
    owner_id: str
    name: str
    kind: str
    brand: str
    model: str
    location: Location | None
    signing_key: Key
    """Ed25519 public key, base64."""
    sealing_key: Key
    """X25519 public key that letters are sealed to, base64."""
    capabilities: Capabilities | None
    state: DeviceState
    """"active" or "revoked"."""
    registered_at: float
    last_seen_at: float
    """0 = never."""
    key_version: int
    """Counts key rotations, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKeys(Record):
    """A device's public keys as the platform tells them: its word, until its owner has compared them."""

    id: str
    owner_id: str
    signing_key: Key
    """Ed25519 public key, base64."""
    sealing_key: Key
    """X25519 public key that letters are sealed to, base64."""
    key_version: int
    """Counts key rotations, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredDevice(Record):
    """A registered device with its API key, shown this once."""

    device: Device
    api_key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey(Record):
    """A new API key; the secret is shown this once."""

    id: str
    api_key: str = field(repr=False)
    principal: Me


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInfo(Record):
    """An API key of an admin or a publisher, without its secret."""

    id: str
    principal: Me
    """Who it speaks for."""
    created_at: float
    expires_at: float
    """When it ends; 0 = never."""
    revoked_at: float
    """When it was revoked; 0 = it was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry(Record):
    """One line of the audit log."""

    number: int
    at: float
    role: PrincipalRole
    subject: str
    act: str
    """What was done, such as "device.revoke"."""
    object: str
    request_id: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerification(Record):
    """Whether the audit log is sound."""

    sound: bool
    entries: int
    head: str
    """Hash of the last entry, hexadecimal."""
    faults: tuple[str, ...]
    """What is wrong; empty when sound."""
    seconds: float
    """How long the check took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserLink(Record):
    """A link between a device and a browser of its owner."""

    id: str
    device_id: str
    created_at: float
    expires_at: float
    """Until when a browser may take it."""
    claimed_at: float
    """When a browser took it; 0 = none has."""
    name: str
    """What the browser calls itself."""
    browser_key: Key
    """Its Ed25519 public key, base64; empty before it took the link."""
    proof: Key
    """HMAC-SHA256 of that key under the link's secret, base64: for the device, which alone can check it."""
    note: Key
    """What the device last told its owner, sealed for the browser, base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Record):
    """What an owner decided for a device; the device believes the signature alone."""

    id: str
    device_id: str
    link_id: str
    at: float
    text: str
    """JSON text; the signature is of it, after a line that reads "coterie decision 1"."""
    signature: Key
    """Ed25519 signature by the browser's key, base64."""
    state: DecisionState
    """"waiting", "done" or "refused"."""
    note: str
    """What the device said to it."""

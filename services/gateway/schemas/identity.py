"""Owners, devices, keys, the audit log."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from services.gateway.schemas.base import (
    Amount,
    Answer,
    Body,
    Finite,
    Id,
    Int64,
    Name,
    Prose,
    PublicKey,
    Signature,
    Word,
)

Sharing = Literal["own", "owners", "all"]
_KEY = "Wm9vbXkga2V5cyBhcmUgdGhpcnR5LXR3byBieXRlcyE="
_PROOF = "A" * 86 + "=="


class Me(Answer):
    """Whom the key used speaks for."""

    role: Literal["admin", "publisher", "device"]
    subject: str
    """Device's id for devices, `adm_…` or `pub_…` otherwise."""
    name: str
    owner_id: str
    """Owner's id, for devices; empty otherwise."""
    key_id: str


class Owner(Answer):
    """A person or organisation with devices."""

    id: str
    name: str
    created_at: float
    sharing: str
    """What others may see of its devices' ties: "own", "owners" or "all"."""


class NewOwner(Body):
    """An owner to create; the same name returns the owner that exists."""

    model_config = ConfigDict(json_schema_extra={"example": {"name": "Ada", "sharing": "owners"}})

    name: Name
    sharing: Sharing = "own"
    """Who may see its devices' ties: devices in the tie, both owners' devices, or everybody."""


class OwnerChange(Body):
    """What to change of an owner."""

    model_config = ConfigDict(json_schema_extra={"example": {"sharing": "all"}})

    sharing: Sharing


class NewToken(Body):
    """An enrolment token to issue."""

    model_config = ConfigDict(json_schema_extra={"example": {"uses": 3, "lifetime_seconds": 3600}})

    uses: Annotated[int, Field(ge=1, le=100_000)] = 1
    """How many devices may register with it."""
    lifetime_seconds: Annotated[float, Field(gt=0, le=10 * 365 * 86_400)] = 86_400


class Token(Answer):
    """An enrolment token; the secret is shown this once."""

    id: str
    token: str
    expires_at: float


class Location(Body):
    """A position on a plane, in metres from the deployment's origin."""

    x_metres: Finite
    y_metres: Finite


class Capabilities(Body):
    """What a device can do; zero or absent means unknown."""

    seconds_per_sample: Amount = 0.0
    """Seconds to train on one sample."""
    link_class: Literal["wifi", "lora", "bluetooth", "cellular", "ethernet", ""] = ""
    seconds_per_megabyte: Amount = 0.0
    """Seconds to transfer one megabyte to the platform."""
    memory_bytes: Int64 = 0
    """Memory it may use for training."""


class NewDevice(Body):
    """A device to register. `proof` is the sealing key signed with the signing key."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "token": "enrol_secret",
                "name": "kitchen-phone",
                "kind": "smartphone",
                "brand": "Acme",
                "model": "A1",
                "location": {"x_metres": 12.5, "y_metres": 3.0},
                "capabilities": {"seconds_per_sample": 0.002, "link_class": "wifi"},
                "signing_key": _KEY,
                "sealing_key": _KEY,
                "proof": _PROOF,
            }
        }
    )

    token: Annotated[str, Field(min_length=1, max_length=512)]
    name: Name
    kind: Word = ""
    brand: Word = ""
    model: Word = ""
    location: Location | None = None
    capabilities: Capabilities | None = None
    signing_key: PublicKey
    sealing_key: PublicKey
    proof: Signature


class Device(Answer):
    """A device."""

    id: str
    owner_id: str
    name: str
    kind: str
    brand: str
    model: str
    location: Location | None
    signing_key: str
    """Ed25519 public key, base64."""
    sealing_key: str
    """X25519 public key that letters are sealed to, base64."""
    capabilities: Capabilities | None
    state: str
    """"active" or "revoked"."""
    registered_at: float
    last_seen_at: float
    """0 = never."""
    key_version: int
    """Counts key rotations, from 1."""


class RegisteredDevice(Answer):
    """A registered device with its API key, shown this once."""

    device: Device
    api_key: str


class DeviceChange(Body):
    """What to change of a device; what is left out stays."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"location": {"x_metres": 4, "y_metres": 2}, "capabilities": None}}
    )

    location: Location | None = None
    capabilities: Capabilities | None = None


class NewKeys(Body):
    """Fresh public keys; `proof` is both keys, one after the other, signed with the old signing key."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"signing_key": _KEY, "sealing_key": _KEY, "proof": _PROOF}}
    )

    signing_key: PublicKey
    sealing_key: PublicKey
    proof: Signature


class Revocation(Body):
    """Why a device is revoked."""

    model_config = ConfigDict(json_schema_extra={"example": {"why": "lost on the train"}})

    why: Prose = ""


class NewApiKey(Body):
    """An API key to create."""

    model_config = ConfigDict(json_schema_extra={"example": {"role": "publisher", "name": "hospital"}})

    role: Literal["admin", "publisher"]
    name: Name


class ApiKey(Answer):
    """A new API key; the secret is shown this once."""

    id: Id
    api_key: str
    principal: Me


class AuditEntry(Answer):
    """One line of the audit log."""

    number: int
    at: float
    role: str
    subject: str
    act: str
    """What was done, such as "device.revoke"."""
    object: str
    request_id: str
    note: str

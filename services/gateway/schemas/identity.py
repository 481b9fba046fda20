"""Owners, devices, keys, the audit log."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from services.gateway.schemas.base import (
    Amount,
    Body,
    Finite,
    Int64,
    Name,
    OpenEnum,
    Prose,
    PublicKey,
    Signature,
)

Sharing = Literal["own", "owners", "all"]
_KEY = "Wm9vbXkga2V5cyBhcmUgdGhpcnR5LXR3byBieXRlcyE="
_PROOF = "A" * 86 + "=="


class NewOwner(Body):
    """An owner to create; the same name returns the existing owner."""

    model_config = ConfigDict(json_schema_extra={"example": {"name": "Ada", "sharing": "owners"}})

    name: Name
    sharing: Sharing = "own"
    """Who may see its devices' ties: the devices of the tie, both owners' devices, or all devices."""
    public: bool = False
    """Whether this is a public owner such as a municipality, whose moving devices meet others as public vehicles."""


class OwnerChange(Body):
    """Changes to an owner."""

    model_config = ConfigDict(json_schema_extra={"example": {"sharing": "all"}})

    sharing: Sharing


class NewToken(Body):
    """An enrolment token to issue."""

    model_config = ConfigDict(json_schema_extra={"example": {"uses": 3, "lifetime_seconds": 3600}})

    uses: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Number of devices that may register with it."""
    lifetime_seconds: Annotated[float, Field(gt=0, le=10 * 365 * 86_400)] = 86_400


class NewLocation(Body):
    """A position on a plane, in metres from the deployment's origin."""

    x_metres: Finite
    y_metres: Finite


class NewCapabilities(Body):
    """Capabilities of a device; zero or absent means unknown."""

    seconds_per_sample: Amount = 0.0
    """Seconds to train on one sample."""
    link_class: Literal["wifi", "lora", "bluetooth", "cellular", "ethernet", ""] = ""
    seconds_per_megabyte: Amount = 0.0
    """Seconds to transfer one megabyte to the platform."""
    memory_bytes: Int64 = 0
    """Memory for training."""


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
    kind: OpenEnum = ""
    brand: OpenEnum = ""
    model: OpenEnum = ""
    location: NewLocation | None = None
    capabilities: NewCapabilities | None = None
    signing_key: PublicKey
    sealing_key: PublicKey
    proof: Signature


class DeviceChange(Body):
    """Changes to a device; missing fields stay unchanged."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"location": {"x_metres": 4, "y_metres": 2}, "capabilities": None}}
    )

    location: NewLocation | None = None
    capabilities: NewCapabilities | None = None


class NewKeys(Body):
    """New public keys; `proof` signs both keys, concatenated, with the old signing key."""

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
    expires_at: Amount = 0.0
    """When it expires, in Unix seconds; 0 = never."""


class Rotation(Body):
    """Options of a key's rotation."""

    model_config = ConfigDict(json_schema_extra={"example": {"grace_seconds": 86400}})

    grace_seconds: Annotated[float, Field(ge=0, le=2_592_000)] = 86_400.0
    """Seconds that the old key stays valid."""
    expires_at: Amount = 0.0
    """When the new key expires, in Unix seconds; 0 = never."""

"""Links to owners' browsers, and decisions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from coterie.protocol.sanitise import ONE_LINE, require_sanitised
from services.gateway.schemas.base import Body, OpenEnum, PublicKey, Signature

Digest = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]{43}=$", description="32 bytes, base64.")]
_KEY = "Wm9vbXkga2V5cyBhcmUgdGhpcnR5LXR3byBieXRlcyE="
_PROOF = "A" * 86 + "=="


class NewLink(Body):
    """A link to offer."""

    model_config = ConfigDict(json_schema_extra={"example": {"token_digest": _KEY, "lifetime_seconds": 600}})

    token_digest: Digest
    """SHA-256 of the token with which a browser claims it."""
    lifetime_seconds: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    """Seconds until the offer expires."""


class Claim(Body):
    """A browser's claim to a link."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"token": _KEY, "browser_key": _KEY, "proof": _KEY, "name": "Firefox on a phone"}}
    )

    token: Digest
    browser_key: PublicKey
    """Its Ed25519 public key."""
    proof: Digest
    """HMAC-SHA256 of that key under the link's secret, for the device to check."""
    name: OpenEnum = ""
    """Display name of the browser."""


class NewSession(Body):
    """A browser's sign-in with the key of its link."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"at_milliseconds": 1_731_888_000_000, "signature": _PROOF}}
    )

    at_milliseconds: Annotated[int, Field(gt=0, lt=1 << 53)]
    """When it was signed, in milliseconds since 1970."""
    signature: Signature
    """Of `coterie session 1`, the link's id and the milliseconds, each on a separate line."""


class NewNote(Body):
    """A device's note to its owner, sealed for one browser."""

    model_config = ConfigDict(json_schema_extra={"example": {"note": "c2VhbGVk"}})

    note: Annotated[str, Field(max_length=87_384, pattern=r"^[A-Za-z0-9+/]*={0,2}$")]
    """At most 65,536 bytes, base64."""


class NewDecision(Body):
    """An owner's decision, signed by a linked browser."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "text": '{"act":"pause","device":"dev_1","link":"lnk_1","number":1731888000000,"until":1732492800}',
                "signature": _PROOF,
            }
        }
    )

    text: Annotated[
        str,
        Field(min_length=1, max_length=4096, json_schema_extra={"pattern": ONE_LINE}),
        AfterValidator(require_sanitised),
    ]
    """JSON text: act, device, link, number, until, and task and terms where they apply."""
    signature: Signature
    """Of the text after a line that reads `coterie decision 1`."""


class DecisionAnswer(Body):
    """A device's outcome of a decision."""

    model_config = ConfigDict(json_schema_extra={"example": {"state": "done", "note": "joined"}})

    state: Literal["done", "refused"]
    note: Annotated[OpenEnum, Field(max_length=500)] = ""

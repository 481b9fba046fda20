"""Preconditions on request fields; each error states the value received and what to do."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from coterie.protocol.keys import BadKeys, require_sound
from services.kit.runtime import ids
from services.trust.domain.records import KEY_BYTES, Capabilities, Location, Profile, PublicKeys
from services.trust.errors import InvalidField, TooMany

SHARINGS = ("own", "owners", "all")
LINK_CLASSES = ("", "wifi", "lora", "bluetooth", "cellular", "ethernet")
MOST_IDS = 10_000


def is_id(prefix: str, value: str) -> bool:
    """Whether `value` has the form of an identifier with that prefix."""
    return re.fullmatch(ids.form(prefix), value) is not None


def require_text(field: str, value: str, *, least: int = 0, most: int = 100) -> str:
    """Return `value` if it has `least` to `most` printable characters and no spaces around it."""
    if not least <= len(value) <= most:
        raise InvalidField(f"{field} must have {least} to {most} characters, got {len(value)}")
    if not value.isprintable() or value != value.strip():
        raise InvalidField(f"{field} {value[:40]!r} must be printable text without spaces around it")
    return value


def require_finite(field: str, value: float, *, least: float = -math.inf, most: float = math.inf) -> float:
    """Return `value` if it is a finite number from `least` to `most`."""
    if not math.isfinite(value) or not least <= value <= most:
        bounds = f" from {least:g} to {most:g}" if least > -math.inf or most < math.inf else ""
        raise InvalidField(f"{field} must be a finite number{bounds}, got {value}")
    return value


def require_one_of(field: str, value: str, choices: Sequence[str]) -> str:
    """Return `value` if it is one of `choices`."""
    if value not in choices:
        raise InvalidField(f"{field} must be one of {', '.join(map(repr, choices))}, got {value[:40]!r}")
    return value


def require_at_most(field: str, number: int, most: int) -> None:
    """Refuse more than `most` items."""
    if number > most:
        raise TooMany(f"{number} {field} exceed the limit of {most}; split the request")


def require_keys(signing: bytes, sealing: bytes) -> PublicKeys:
    """Return the two public keys if they are valid."""
    for field, key in (("signing_key", signing), ("sealing_key", sealing)):
        if len(key) != KEY_BYTES or not any(key):
            raise InvalidField(f"{field} must be a public key of {KEY_BYTES} bytes, got {len(key)} bytes or all zero")
    try:
        require_sound(signing, sealing)
    except BadKeys as error:
        raise InvalidField(str(error)) from error
    return PublicKeys(signing, sealing)


def require_profile(given: Profile) -> Profile:
    """Return `given` if every field is valid."""
    require_text("name", given.name, least=1)
    require_text("kind", given.kind)
    require_text("brand", given.brand)
    require_text("model", given.model)
    if given.location is not None:
        require_location(given.location)
    require_capabilities(given.capabilities)
    return given


def require_location(given: Location) -> Location:
    """Return `given` if both coordinates are finite and within 1e8 m."""
    require_finite("location.x_metres", given.x_metres, least=-1e8, most=1e8)
    require_finite("location.y_metres", given.y_metres, least=-1e8, most=1e8)
    return given


def require_capabilities(given: Capabilities) -> Capabilities:
    """Return `given` if every number is finite and not negative."""
    require_finite("capabilities.seconds_per_sample", given.seconds_per_sample, least=0, most=1e6)
    require_finite("capabilities.seconds_per_megabyte", given.seconds_per_megabyte, least=0, most=1e6)
    require_finite("capabilities.memory_bytes", given.memory_bytes, least=0)
    require_one_of("capabilities.link_class", given.link_class, LINK_CLASSES)
    return given

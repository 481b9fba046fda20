"""Preconditions on what comes over the wire, each refused with the value received and what to do."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from coterie.protocol.keys import BadKeys, demand_sound
from services.kit.runtime import ids
from services.trust.domain.records import KEY_BYTES, Capabilities, Location, Profile, PublicKeys
from services.trust.errors import InvalidField, TooMany

SHARINGS = ("own", "owners", "all")
LINK_CLASSES = ("", "wifi", "lora", "bluetooth", "cellular", "ethernet")
MOST_IDS = 10_000


def is_id(prefix: str, value: str) -> bool:
    """Whether `value` can be an identifier with that prefix at all."""
    return re.fullmatch(ids.form(prefix), value) is not None


def text(field: str, value: str, *, least: int = 0, most: int = 100) -> str:
    """`value`, if it has `least` to `most` characters, all printable, and no spaces around it."""
    if not least <= len(value) <= most:
        raise InvalidField(f"{field} must have {least} to {most} characters, not {len(value)}")
    if not value.isprintable() or value != value.strip():
        raise InvalidField(f"{field} {value[:40]!r} must be printable text without spaces around it")
    return value


def finite(field: str, value: float, *, least: float = -math.inf, most: float = math.inf) -> float:
    """`value`, if it is a finite number from `least` to `most`."""
    if not math.isfinite(value) or not least <= value <= most:
        bounds = f" from {least:g} to {most:g}" if least > -math.inf or most < math.inf else ""
        raise InvalidField(f"{field} must be a finite number{bounds}, not {value}")
    return value


def one_of(field: str, value: str, choices: Sequence[str]) -> str:
    """`value`, if it is one of `choices`."""
    if value not in choices:
        raise InvalidField(f"{field} must be one of {', '.join(map(repr, choices))}, not {value[:40]!r}")
    return value


def at_most(field: str, number: int, most: int) -> None:
    """Refuses more than `most` of something."""
    if number > most:
        raise TooMany(f"{number} {field} are more than the {most} taken at once; split the request")


def keys(signing: bytes, sealing: bytes) -> PublicKeys:
    """The two public keys, if they can be such."""
    for field, key in (("signing_key", signing), ("sealing_key", sealing)):
        if len(key) != KEY_BYTES or not any(key):
            raise InvalidField(f"{field} must be a public key of {KEY_BYTES} bytes, not {len(key)} bytes or all zero")
    try:
        demand_sound(signing, sealing)
    except BadKeys as error:
        raise InvalidField(str(error)) from error
    return PublicKeys(signing, sealing)


def profile(given: Profile) -> Profile:
    """`given`, if every field is sound."""
    text("name", given.name, least=1)
    text("kind", given.kind)
    text("brand", given.brand)
    text("model", given.model)
    if given.location is not None:
        location(given.location)
    capabilities(given.capabilities)
    return given


def location(given: Location) -> Location:
    """`given`, if both coordinates are finite and on this planet."""
    finite("location.x_metres", given.x_metres, least=-1e8, most=1e8)
    finite("location.y_metres", given.y_metres, least=-1e8, most=1e8)
    return given


def capabilities(given: Capabilities) -> Capabilities:
    """`given`, if every figure is finite and not negative."""
    finite("capabilities.seconds_per_sample", given.seconds_per_sample, least=0, most=1e6)
    finite("capabilities.seconds_per_megabyte", given.seconds_per_megabyte, least=0, most=1e6)
    finite("capabilities.memory_bytes", given.memory_bytes, least=0)
    one_of("capabilities.link_class", given.link_class, LINK_CLASSES)
    return given

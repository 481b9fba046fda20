"""Preconditions on request fields; each error states the value received and what to do."""

from __future__ import annotations

import math
import re

from services.pricing.domain.ledger import MOST_MICROCREDITS
from services.pricing.errors import BadAmount, BadName, BadPeriod, BadRound

_NAME = re.compile(r"^[\x21-\x39\x3b-\x7e]{1,100}$")  # printable ASCII without space and colon
_KEY = re.compile(r"^[^\x00-\x1f\x7f]{1,200}$")
DEFAULT_DELTA = 1e-6


def require_name(what: str, value: str) -> str:
    """Return `value` if it can be the part of an account id after the colon."""
    if not _NAME.match(value):
        raise BadName(f"{what} {value[:40]!r} must be 1 to 100 printable characters without spaces or colons")
    return value


def require_optional_name(what: str, value: str) -> str:
    """Return `value` if it is empty or a name."""
    return require_name(what, value) if value else value


def require_key(value: str) -> str:
    """Return `value` if it is a valid idempotency key."""
    if not _KEY.match(value):
        raise BadName(f"key {value[:40]!r} must be 1 to 200 characters, none of them a control character")
    return value


def require_amount(value: int, least: int) -> int:
    """Return `value` if it is an amount from `least` to the largest amount the ledger moves."""
    if not least <= value <= MOST_MICROCREDITS:
        raise BadAmount(f"amount_microcredits must be from {least} to {MOST_MICROCREDITS}, not {value}")
    return value


def require_round_number(value: int) -> int:
    """Return `value` if it is at least 1."""
    if value < 1:
        raise BadRound(f"rounds count from 1, not {value}")
    return value


def require_period(since: float, until: float, now: float) -> tuple[float, float]:
    """Return the period [since, until); an end of 0 means now, inclusive."""
    if not (math.isfinite(since) and math.isfinite(until)) or since < 0 or until < 0:
        raise BadPeriod(f"since and until must be Unix seconds, not {since} and {until}")
    if until and until < since:
        raise BadPeriod(f"the period ends at {until}, before it begins at {since}; swap them")
    return since, until or math.nextafter(now, math.inf)


def require_delta(value: float) -> float:
    """Return `value` as a δ; 0 means the default."""
    if not 0.0 <= value < 1.0:
        raise BadPeriod(f"delta must lie in (0, 1), 0 meaning {DEFAULT_DELTA}, not {value}")
    return value or DEFAULT_DELTA

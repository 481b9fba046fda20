"""Identifiers: a prefix for the kind of object, and 26 characters that sort by time of creation."""

from __future__ import annotations

import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(prefix: str) -> str:
    """Make an identifier such as `dev_01jd…`: 48 bits of milliseconds, then 80 random bits, in base 32."""
    number = (int(time.time() * 1000) << 80) | secrets.randbits(80)
    digits = [_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5)]
    return f"{prefix}_{''.join(digits)}"


def form(prefix: str) -> str:
    """Return the regular expression of identifiers with this prefix."""
    return rf"{prefix}_[0-9a-z]{{26}}"

"""Identifiers: a prefix that says what it names, and 26 characters that sort by time of creation."""

from __future__ import annotations

import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(prefix: str) -> str:
    """A fresh identifier such as `dev_01jd…`: 48 bits of milliseconds, then 80 random bits, in base 32."""
    number = (int(time.time() * 1000) << 80) | secrets.randbits(80)
    digits = [_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5)]
    return f"{prefix}_{''.join(digits)}"


def form(prefix: str) -> str:
    """The regular expression of identifiers with that prefix."""
    return rf"{prefix}_[0-9a-z]{{26}}"

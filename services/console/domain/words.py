"""Formatting of numbers, times and states for all pages."""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo

MICRO = 1_000_000
_UNITS = (("day", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
UNIT_WORDS = {
    "device": "everything a device holds",
    "example": "one training example",
}
STATE_WORDS = {
    "created": "waiting for devices",
    "running": "running",
    "finished": "finished",
    "failed": "failed",
    "cancelled": "cancelled",
    "active": "active",
    "revoked": "revoked",
    "withdrawn": "withdrawn",
}


def credits(micro: int, *, places: int = 6) -> str:
    """Format micro-credits as credits without trailing zeros: 1250000 → "1.25"."""
    sign = "−" if micro < 0 else ""
    whole, part = divmod(abs(micro), MICRO)
    text = f"{part:06d}"[:places].rstrip("0")
    return f"{sign}{whole:,}{'.' + text if text else ''}"


def number(value: float | str | None, digits: int = 4) -> str:
    """Format a number with `digits` significant digits; infinity as ∞."""
    value = figure(value)
    if value is None:
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    if abs(value) >= 1e7 or abs(value) < 1e-4:
        base, _, power = f"{value:.{digits - 1}e}".partition("e")
        base = base.rstrip("0").rstrip(".") if "." in base else base
        return f"{base}e{int(power)}".replace("-", "−")
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}".replace("-", "−")
    text = f"{value:.{digits}g}"
    return text.replace("-", "−")


def figure(value: float | str | None) -> float | None:
    """Parse a number of the REST API, where infinity is the text "inf"; None for anything else."""
    if value is None:
        return None
    try:
        result = float(value)
    except ValueError:
        return None
    return None if math.isnan(result) else result


def percent(share: float, digits: int = 0) -> str:
    """Format a share as a percentage."""
    return f"{100 * share:.{digits}f} %"


def size(count: int) -> str:
    """Format a number of bytes."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{count} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable: the last unit has no upper bound")


def span(seconds: float) -> str:
    """Format a duration: "3 min 20 s", "2 days 4 h"."""
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    rest, parts = round(seconds), []
    for unit, length in _UNITS:
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count} {unit}{'s' if unit == 'day' and count != 1 else ''}")
    return " ".join(parts[:2])


def ago(at: float, now: float) -> str:
    """Format a time relative to now: "just now", "5 min ago"; "never" for 0."""
    if not at:
        return "never"
    seconds = now - at
    if seconds < 0:
        return f"in {span(-seconds)}" if seconds < -1 else "just now"
    return "just now" if seconds < 5 else f"{_leading(seconds)} ago"


def _leading(seconds: float) -> str:
    for unit, length in _UNITS:
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' if unit == 'day' and count != 1 else ''}"
    return "1 s"


def moment(at: float, zone: tzinfo = UTC) -> str:
    """Format a time in the user's time zone; "–" for 0."""
    return datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M:%S") if at else "–"


def epsilon(value: float | str) -> str:
    """Format ε; "∞ (no noise)" for infinity."""
    result = figure(value)
    if result is None:
        return "–"
    return "∞ (no noise)" if math.isinf(result) else number(result, 3)


def strength(value: float | str) -> str:
    """Describe the strength of an ε."""
    result = figure(value)
    if result is None or result == 0:
        return "nothing was released"
    if math.isinf(result):
        return "no guarantee: a release had no noise"
    if result <= 1:
        return "strong: an observer learns almost nothing"
    if result <= 8:
        return "moderate: common in practice"
    if result <= 20:
        return "weak: an observer may learn a lot"
    return "almost no guarantee"


def count(items: int, one: str, many: str = "") -> str:
    """Format a count: "1 device", "3 devices"."""
    return f"{items:,} {one if items == 1 else many or one + 's'}"


def short(identity: str) -> str:
    """Shorten an id to its end."""
    return f"…{identity[-6:]}" if len(identity) > 12 else identity

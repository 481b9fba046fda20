"""Pages: every list is cut by key, so a page costs the same wherever it lies."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from services.kit.errors import InvalidInput

Item = TypeVar("Item")
USUAL, MOST = 100, 500
MOST_BYTES = 4 << 20
"""Of a page whose items may be large; the first item passes however large it is."""
NUMBER = r"[0-9]{1,18}"
"""Form of a cursor that is a number."""


class BadPage(InvalidInput):
    """The page asked for cannot be."""


class BadCursor(InvalidInput):
    """The cursor is not one of this list's."""


@dataclass(frozen=True, slots=True)
class Page:
    """What part of a list is wanted: at most `limit` items after `cursor`, from the first on when it is empty."""

    limit: int
    cursor: str


def read_page(limit: int, cursor: str, form: str, usual: int = USUAL, most: int = MOST) -> Page:
    """The page asked for; `form` is the regular expression of this list's cursors."""
    size = page_size(limit, usual, most)
    if cursor and not re.fullmatch(form, cursor):
        raise BadCursor(f"{cursor[:40]!r} is not a cursor of this list; use next_cursor of the page before")
    return Page(size, cursor)


def page_size(limit: int, usual: int = USUAL, most: int = MOST) -> int:
    """How many items a page holds: `limit`, or `usual` when it is 0."""
    if not 0 <= limit <= most:
        raise BadPage(f"limit must be from 1 to {most} (0 means {usual}), not {limit}")
    return limit or usual


def next_cursor(items: Sequence[Item], limit: int, key: Callable[[Item], str]) -> str:
    """Cursor of the page after these items; empty when they did not fill theirs."""
    return key(items[-1]) if len(items) == limit else ""


def within_bytes(items: Sequence[Item], size: Callable[[Item], int], most: int = MOST_BYTES) -> Sequence[Item]:
    """The first of these items that together have at most `most` bytes; never none where there are some."""
    total = 0
    for count, item in enumerate(items):
        total += size(item)
        if total > most and count:
            return items[:count]
    return items

"""Keyset pagination: a page costs the same anywhere in a list."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from services.kit.errors import InvalidInput

Item = TypeVar("Item")
USUAL, MOST = 100, 500
MOST_BYTES = 4 << 20
"""Size limit of a page with large items; a page has at least one item."""
NUMBER = r"[0-9]{1,18}"
"""Form of a cursor that is a number."""


class BadPage(InvalidInput):
    """The page size is out of range."""


class BadCursor(InvalidInput):
    """The cursor does not belong to this list."""


@dataclass(frozen=True, slots=True)
class Page:
    """A requested part of a list: at most `limit` items after `cursor`; an empty cursor starts the list."""

    limit: int
    cursor: str


def read_page(limit: int, cursor: str, form: str, usual: int = USUAL, most: int = MOST) -> Page:
    """Validate a page request. form: regular expression of this list's cursors."""
    size = page_size(limit, usual, most)
    if cursor and not re.fullmatch(form, cursor):
        raise BadCursor(f"{cursor[:40]!r} is not a cursor of this list; use next_cursor of the previous page")
    return Page(size, cursor)


def page_size(limit: int, usual: int = USUAL, most: int = MOST) -> int:
    """Return the number of items of a page: `limit`, or `usual` when it is 0."""
    if not 0 <= limit <= most:
        raise BadPage(f"limit must be from 1 to {most} (0 means {usual}), not {limit}")
    return limit or usual


def next_cursor(items: Sequence[Item], limit: int, key: Callable[[Item], str]) -> str:
    """Return the cursor of the next page; empty when these items do not fill their page."""
    return key(items[-1]) if len(items) == limit else ""


def within_bytes(items: Sequence[Item], size: Callable[[Item], int], most: int = MOST_BYTES) -> Sequence[Item]:
    """Return the first items that together have at most `most` bytes, but at least one."""
    total = 0
    for count, item in enumerate(items):
        total += size(item)
        if total > most and count:
            return items[:count]
    return items

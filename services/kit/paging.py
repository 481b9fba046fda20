"""Pages: every list is cut by key, so a page costs the same wherever it lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from services.kit.errors import InvalidInput

Item = TypeVar("Item")
MOST = 500


class BadPage(InvalidInput):
    """The page asked for cannot be."""


def page_size(limit: int, usual: int = 100, most: int = MOST) -> int:
    """How many items a page holds: `limit`, or `usual` when it is 0."""
    if not 0 <= limit <= most:
        raise BadPage(f"limit must be from 1 to {most} (0 means {usual}), not {limit}")
    return limit or usual


def next_cursor(items: Sequence[Item], limit: int, key: Callable[[Item], str]) -> str:
    """Cursor of the page after these items; empty when they did not fill theirs."""
    return key(items[-1]) if len(items) == limit else ""

"""Run CPU work inline if it is small, on a thread if it would block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

INLINE_ITEMS = 250
"""Up to this many items a thread would cost more than the work."""
T = TypeVar("T")


async def thread_if_large(size: int, function: Callable[..., T], *arguments: object) -> T:
    """Call a function of `size` items, on a thread if they are many."""
    return function(*arguments) if size <= INLINE_ITEMS else await asyncio.to_thread(function, *arguments)

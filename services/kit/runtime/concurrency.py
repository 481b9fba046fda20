"""CPU work: inline when small, in a thread when it would block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

INLINE_ITEMS = 250
"""Up to this many items run inline: a thread would cost more."""
T = TypeVar("T")


async def thread_if_large(size: int, function: Callable[..., T], *arguments: object) -> T:
    """Call a function that handles `size` items."""
    return function(*arguments) if size <= INLINE_ITEMS else await asyncio.to_thread(function, *arguments)

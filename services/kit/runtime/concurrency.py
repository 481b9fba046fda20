"""Work for the processor: on the spot where it is little, in a thread where it would keep others waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

INLINE_ITEMS = 250
"""So many things are gone through on the spot: a thread would cost more, and holds everybody up as long."""
T = TypeVar("T")


async def thread_if_large(size: int, function: Callable[..., T], *arguments: object) -> T:
    """What a function makes of `size` things."""
    return function(*arguments) if size <= INLINE_ITEMS else await asyncio.to_thread(function, *arguments)

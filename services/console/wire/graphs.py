"""Trust graphs, cached for a minute: reading one takes the platform seconds and adds an audit entry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from weakref import WeakValueDictionary

from cachetools import LRUCache

from services.console.domain.graph import Graph
from services.console.wire.platform import Platform

FRESH_SECONDS = 60.0
MOST_GRAPHS = 12
Key = tuple[str, str, float]


class Graphs:
    """Cache of graphs by viewer, task and time; admins share entries, each publisher has its own."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._cache: LRUCache[Key, tuple[float, Graph]] = LRUCache(MOST_GRAPHS)
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def graph(self, platform: Platform, *, task: str = "", at: float = 0.0, fresh: bool = False) -> Graph:
        """Return the graph of a task's devices, or of all devices; `fresh` bypasses the cache."""
        platform.require_session()
        person = platform.person
        key = ("admin" if person.role == "admin" else person.subject, task, at)
        async with self._locks.setdefault(key, asyncio.Lock()):
            cached = self._cache.get(key)
            if cached is None or fresh or (at == 0.0 and self._now() - cached[0] > FRESH_SECONDS):
                document = await platform.graph(task=task, at=at)
                cached = (self._now(), await asyncio.to_thread(Graph.of, document))
                self._cache[key] = cached
        return cached[1]

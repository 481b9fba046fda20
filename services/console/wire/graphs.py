"""Trust graphs, kept for a minute: reading one takes the platform seconds and is written in its audit log."""

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
Place = tuple[str, str, float]


class Graphs:
    """Graphs by who may see them, of which task, as they were when.

    Admins all see the same one; a publisher sees its own tasks' and shares them with nobody.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._known: LRUCache[Place, tuple[float, Graph]] = LRUCache(MOST_GRAPHS)
        self._reading: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()

    async def graph(self, platform: Platform, *, task: str = "", at: float = 0.0, fresh: bool = False) -> Graph:
        """The graph of a task's devices, or of all; `fresh` reads it anew."""
        platform.require_session()
        person = platform.person
        place = ("admin" if person.role == "admin" else person.subject, task, at)
        async with self._reading.setdefault(place, asyncio.Lock()):
            known = self._known.get(place)
            if known is None or fresh or (at == 0.0 and self._now() - known[0] > FRESH_SECONDS):
                document = await platform.graph(task=task, at=at)
                known = (self._now(), await asyncio.to_thread(Graph.of, document))
                self._known[place] = known
        return known[1]

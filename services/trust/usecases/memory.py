"""The social memory shared by the use cases: pairs in memory, kept in step with the database, and graphs of them."""

from __future__ import annotations

import asyncio

from sqlalchemy.ext.asyncio import AsyncConnection

from services.kit.clock import Clock
from services.trust import checks
from services.trust.domain.graph import TrustGraph
from services.trust.domain.parameters import TrustParameters
from services.trust.pairs import GraphBuilder, PairBook, PairSnapshot
from services.trust.store import social


class SocialMemory:
    """Pairs and graphs. The database counts versions; whatever this process missed is read when it is next needed."""

    def __init__(self, clock: Clock, parameters: TrustParameters) -> None:
        self.parameters = parameters
        self.book = PairBook()
        self._clock = clock
        self._builder = GraphBuilder(parameters)
        self._building = asyncio.Lock()

    async def refresh(self, connection: AsyncConnection) -> None:
        """Adopts what other transactions, here or in other processes, have changed."""
        version = await social.version(connection)
        if version > self.book.version:
            self.book.take(await social.pairs_since(connection, self.book.version), version)

    async def pairs_at(self, connection: AsyncConnection, at: float) -> tuple[PairSnapshot, float]:
        """The pairs as known at `at` (0 = now), and that moment."""
        checks.finite("at", at, least=0)
        await self.refresh(connection)
        pairs = self.book.snapshot()
        if at == 0:
            # A clock that was set back must not make the latest evidence lie in the future.
            return pairs, max(self._clock.now(), pairs.latest)
        if at >= pairs.latest:
            return pairs, at
        history = await social.history_before(connection, at)
        then = await asyncio.to_thread(
            pairs.replayed,
            at,
            history.pairs - 1,
            history.positive,
            history.durations_seconds,
            history.at,
            self.parameters,
        )
        return then, at

    async def graph(self, pairs: PairSnapshot, at: float, devices: int) -> TrustGraph:
        """The trust graph at `at`, with room for devices up to number `devices`."""
        async with self._building:
            return await asyncio.to_thread(self._builder.build, pairs, at, devices + 1)

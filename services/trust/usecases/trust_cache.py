"""The cache of pairs and trust graphs that the use cases share, synchronised with the database."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import repeat

import numpy as np

from coterie.records.enums import RelationKind
from services.kit.database.rows import Tx
from services.kit.runtime.clock import Clock
from services.trust.domain import checks, search
from services.trust.domain.evidence import Pieces, fold
from services.trust.domain.graph import TrustGraph
from services.trust.domain.pairs import GraphBuilder, LivePairs, PairSnapshot, Priors, begun_with
from services.trust.domain.parameters import EvidenceRule, TrustParameters
from services.trust.domain.relations import BEFRIENDED, Relation, RelationPriors
from services.trust.store import records, relations, social
from services.trust.usecases.records import add_to_records

MOST_RELATED = 500_000


_LARGE = 5_000
"""Pairs from which the search is compiled at once."""


class TrustCache:
    """Pairs and graphs. The database counts versions; this process reads missed changes at the next use.

    `priors` gives the worth of each kind of relation before any interaction; by default only friendship that both
    owners declared counts.
    """

    def __init__(
        self,
        clock: Clock,
        parameters: TrustParameters,
        rule: EvidenceRule,
        priors: RelationPriors | None = None,
    ) -> None:
        self.parameters = parameters
        self.rule = rule
        self.pairs = LivePairs()
        self._clock = clock
        self._builder = GraphBuilder(parameters, rule)
        self._building = asyncio.Lock()
        self._warming: asyncio.Task[None] | None = None
        self._priors = priors
        self._known: tuple[tuple[object, ...], PairSnapshot] | None = None

    async def prepare(self, tx: Tx) -> None:
        """Recompute the sums if they were made with another decay or full duration, and read them."""
        await social.locked(tx)
        made_with = await social.parameters(tx)
        own = (self.parameters.decay_rate, self.parameters.full_duration_seconds)
        if made_with != own:
            await self._replay(tx)
            await social.set_parameters(tx, *own)
        await self.refresh(tx)
        if made_with != own:
            await self._replay_records(tx)

    async def _replay_records(self, tx: Tx) -> None:
        """Recompute owners' records from all evidence, 5,000 pairs at a time; pairs are in memory."""
        await records.forget(tx)
        for start in range(1, len(self.pairs) + 1, _LARGE):
            history = await social.history_between(tx, start, start + _LARGE)
            await add_to_records(tx, history, *self.pairs.ends(history.pairs - 1), self.parameters)

    async def _replay(self, tx: Tx) -> None:
        """Recompute the sums of every pair from its interactions, 5,000 pairs at a time."""
        version = await social.version(tx) + 1
        last = await social.pair_count(tx)
        for start in range(1, last + 1, _LARGE):
            stop = min(start + _LARGE, last + 1)
            history = await social.history_between(tx, start, stop)
            begun = {pair - start: item for pair, item in (await records.inherited(tx, start, stop)).items()}
            table = fold(begun_with(stop - start, begun), shifted(history, start), self.parameters)
            columns = (column.tolist() for column in table.columns())
            await social.save_pairs(tx, [], list(zip(*columns, repeat(version), range(start, stop))), version)

    async def refresh(self, tx: Tx) -> None:
        """Read what other transactions, here or in other processes, have changed."""
        version = await social.version(tx)
        if version > self.pairs.version:
            self.pairs.take(await social.pairs_since(tx, self.pairs.version), version)
        if self._warming is None and len(self.pairs) >= _LARGE:
            # Compiling takes seconds: do it now in the background, before a request for a matrix waits for it.
            self._warming = asyncio.create_task(asyncio.to_thread(search.warm_up, self.parameters.paths))

    async def pairs_at(self, tx: Tx, at: float) -> tuple[PairSnapshot, float]:
        """Return the pairs as known at `at` (0 = now), and that moment."""
        checks.require_finite("at", at, least=0)
        await self.refresh(tx)
        pairs = self.pairs.snapshot()
        if at == 0:
            # The latest evidence must not lie in the future when a clock was set back.
            return await self._with_priors(tx, pairs, 0.0), max(self._clock.now(), pairs.latest)
        if at >= pairs.latest:
            return await self._with_priors(tx, pairs, at), at
        history = await social.history_before(tx, at)
        begun = {pair - 1: item for pair, item in (await records.inherited(tx, 1, len(pairs) + 1, at)).items()}
        then = await asyncio.to_thread(pairs.replayed, at, shifted(history, 1), begun, self.parameters)
        return await self._with_priors(tx, then, at), at

    async def _with_priors(self, tx: Tx, pairs: PairSnapshot, at: float) -> PairSnapshot:
        friends = await relations.friendship_stamp(tx)
        if self._priors is None and not friends[0]:
            return pairs
        stamp = (friends if self._priors is None else await relations.stamp(tx), pairs.version, at)
        if self._known is None or self._known[0] != stamp:
            find = relations.befriended if self._priors is None else relations.every_pair
            related = await find(tx, at or None)
            checks.require_at_most("related pairs; switch relation priors off", len(related), MOST_RELATED)
            worth = await asyncio.to_thread(_worth, related, self._priors or BEFRIENDED)
            self._known = (stamp, pairs.with_priors(worth))
        return self._known[1]

    async def graph(self, pairs: PairSnapshot, at: float, devices: int) -> TrustGraph:
        """Return the trust graph at `at`, with room for devices up to number `devices`."""
        async with self._building:
            return await asyncio.to_thread(self._builder.build, pairs, at, devices + 1)


def shifted(history: Pieces, first: int) -> Pieces:
    """Return evidence by place among the pairs from number `first` on."""
    return replace(history, pairs=history.pairs - first)


def _worth(related: list[tuple[int, int, str, float]], priors: RelationPriors) -> Priors:
    """Return the strongest prior of every related pair."""
    by_pair: dict[tuple[int, int], list[Relation]] = {}
    for low, high, kind, strength in related:
        relation = Relation(RelationKind(kind), low, high, strength, {})
        by_pair.setdefault((low, high), []).append(relation)
    worth = {pair: priors.of(result) for pair, result in by_pair.items()}
    ends = np.array(list(worth), dtype=np.int64).reshape(-1, 2)
    return Priors(
        ends[:, 0],
        ends[:, 1],
        np.array([prior.closeness for prior in worth.values()], dtype=np.float64),
        np.array([prior.pseudo_count for prior in worth.values()], dtype=np.float64),
    )

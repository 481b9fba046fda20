"""Trust among devices: pairs with reasons, peers, matrices."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.rpc.paging import page_size
from services.kit.rpc.principal import require_device, require_role
from services.trust.domain import checks, explanations
from services.trust.domain.evidence import Evidence
from services.trust.domain.graph import Integers, TrustGraph
from services.trust.domain.matrices import Entries, entries_among
from services.trust.domain.parameters import EvidenceRule, TrustParameters
from services.trust.domain.records import SocialRelation
from services.trust.domain.scores import (
    TrustPath,
    best_path,
    combine,
    direct_row,
    indirect_trust,
)
from services.trust.errors import InvalidField, SelfTrust
from services.trust.store import devices, relations, social
from services.trust.usecases.directory import Directory
from services.trust.usecases.trust_cache import TrustCache
from services.trust.usecases.visibility import View, Visibility

MOST_WAITING = 1_000
"""Most unconfirmed reports of a pair that are counted; their number has no bound."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a path, by device id."""

    from_device: str
    to_device: str
    direct: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Trust of a pair and its parts; sums are aged to `at`."""

    at: float
    direct: float
    indirect: float
    trust: float
    positive_count: int
    negative_count: int
    positive_sum: float
    negative_sum: float
    last_at: float
    path: list[Hop]
    relations: list[SocialRelation]
    text: str
    unconfirmed_count: int
    parameters: TrustParameters
    rule: EvidenceRule


@dataclass(frozen=True, slots=True)
class Peer:
    """A device and the trust in it."""

    device_id: str
    direct: float
    indirect: float
    trust: float


class Scores:
    """Answers questions about trust."""

    def __init__(self, database: Database, directory: Directory, cache: TrustCache, visibility: Visibility) -> None:
        self._database = database
        self._directory = directory
        self._cache = cache
        self._visibility = visibility

    async def explain(self, device_a: str, device_b: str, at: float) -> Explanation:
        """Return trust between two devices with its reasons."""
        if device_a == device_b:
            raise SelfTrust("a device trusts itself fully; ask about two different devices")
        await self._visibility.note("explain", device_a, device_b)
        async with self._database.reading(offload=True) as tx:
            a, b = await self._directory.require(tx, device_a, device_b)
            view = await self._visibility.view(tx)
            view.require(a, b)
            pairs, moment = await self._cache.pairs_at(tx, at)
            graph = await self._cache.graph(pairs, moment, max(a.number, b.number))
            path = await asyncio.to_thread(best_path, graph, a.number, b.number)
            shown = await self._visible_hops(tx, view, path)
            related = await relations.between(tx, a.number, b.number)
            profiles = await devices.by_ids(tx, [device_a, device_b])
            row = pairs.row_of(a.number, b.number)
            since = moment - self._cache.rule.confirm_seconds
            waiting = 0 if row is None else await social.waiting_count(tx, row + 1, since, moment, MOST_WAITING)
        names = (profiles[device_a].profile.name, profiles[device_b].profile.name)
        direct = graph.direct(a.number, b.number)
        return self._explanation(
            names,
            pairs.evidence_of(row),
            waiting=waiting,
            at=moment,
            direct=direct,
            path=path,
            shown=shown,
            related=related,
        )

    async def _visible_hops(self, tx: Tx, view: View, path: TrustPath | None) -> list[Hop]:
        if path is None:
            return []
        entries = await self._directory.named(tx, path.devices)
        steps = zip(pairwise(path.devices), path.hops, strict=True)
        return [
            Hop(entries[left].id, entries[right].id, direct)
            for (left, right), direct in steps
            if view.sees(entries[left], entries[right])
        ]

    def _explanation(
        self,
        names: tuple[str, str],
        evidence: Evidence,
        waiting: int,
        at: float,
        direct: float,
        path: TrustPath | None,
        shown: list[Hop],
        related: list[SocialRelation],
    ) -> Explanation:
        indirect, hops = (path.indirect, path.hops) if path else (0.0, ())
        weight = self._cache.parameters.direct_weight
        trust = float(combine(np.array([direct]), np.array([indirect]), weight)[0])
        reasons = explanations.Reasons(
            name_a=names[0],
            name_b=names[1],
            evidence=evidence,
            unconfirmed=waiting,
            at=at,
            direct=direct,
            indirect=indirect,
            trust=trust,
            hops=hops,
            hidden=len(hops) - len(shown),
            relations=tuple(relation.because for relation in related),
        )
        decay_rate = self._cache.parameters.decay_rate
        aging = math.exp(-decay_rate * (at - evidence.reference_time)) if evidence.weight else 0.0
        return Explanation(
            at=at,
            direct=direct,
            indirect=indirect,
            trust=trust,
            positive_count=evidence.good,
            negative_count=evidence.count - evidence.good,
            positive_sum=evidence.positive * aging,
            negative_sum=evidence.negative * aging,
            last_at=evidence.reference_time if evidence.count else 0.0,
            path=shown,
            relations=related,
            text=explanations.explain(reasons, self._cache.parameters, self._cache.rule),
            unconfirmed_count=waiting,
            parameters=self._cache.parameters,
            rule=self._cache.rule,
        )

    async def peers(self, device_id: str, limit: int, at: float) -> list[Peer]:
        """List the peers a device trusts most, without itself; strangers (trust 0) are not listed."""
        require_device(device_id)
        wanted = page_size(limit, usual=20)
        await self._visibility.note("peers", device_id)
        async with self._database.reading(offload=True) as tx:
            (me,) = await self._directory.require(tx, device_id)
            pairs, moment = await self._cache.pairs_at(tx, at)
            graph = await self._cache.graph(pairs, moment, me.number)
            weight = self._cache.parameters.direct_weight
            ranked = await asyncio.to_thread(_closest, graph, me.number, weight, wanted)
            entries = await self._directory.named(tx, [number for number, *_ in ranked])
        return [Peer(entries[number].id, *values) for number, *values in ranked]

    async def matrix(
        self, device_ids: Sequence[str], at: float, direct_weight: float | None, piece: int
    ) -> tuple[Entries, float, float]:
        """Return direct and combined trust among devices, by position in the request, with its moment and its ω.

        Without `direct_weight` ω is the registry's. Answers of many pairs come in pieces.
        """
        weight = self._cache.parameters.direct_weight if direct_weight is None else direct_weight
        if not 0 <= weight <= 1:
            raise InvalidField(f"direct_weight must lie in [0, 1], got {weight}")
        if not 0 <= piece <= len(device_ids):
            raise InvalidField(f"piece must be the next_piece of an answer about these devices, got {piece}")
        if not piece:
            await self._visibility.note("matrix", f"{len(device_ids)} devices")
        graph, numbers, moment = await self._participants(device_ids, at, checks.MOST_IDS)
        return await asyncio.to_thread(entries_among, graph, numbers, weight, piece), moment, weight

    async def _participants(
        self, device_ids: Sequence[str], at: float, most: int
    ) -> tuple[TrustGraph, Integers, float]:
        """Return the graph at `at`, the devices' numbers in the requested order, and the moment."""
        require_role("admin")
        checks.require_at_most("device_ids", len(device_ids), most)
        if len(set(device_ids)) < len(device_ids):
            raise InvalidField("device_ids must be distinct; remove the repetitions")
        async with self._database.reading(offload=True) as tx:
            entries = await self._directory.require(tx, *device_ids)
            pairs, moment = await self._cache.pairs_at(tx, at)
            numbers = np.array([entry.number for entry in entries], dtype=np.int64)
            return await self._cache.graph(pairs, moment, int(numbers.max(initial=0))), numbers, moment


def _closest(graph: TrustGraph, me: int, weight: float, most: int) -> list[tuple[int, float, float, float]]:
    """Return number, direct, indirect and combined trust of the most trusted devices; ties by number."""
    direct, indirect = direct_row(graph, me), indirect_trust(graph, me)
    trust = combine(direct, indirect, weight)
    others = np.flatnonzero(trust > 0)
    best = others[np.lexsort((others, -trust[others]))][:most]
    columns = (column[best].tolist() for column in (direct, indirect, trust))
    return list(zip(best.tolist(), *columns, strict=True))

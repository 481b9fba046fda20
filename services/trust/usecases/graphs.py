"""The trust graph of some devices, of an owner, or of all devices: nodes, ties, and their relations."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.trust.domain import checks
from services.trust.domain.graph import Integers
from services.trust.domain.pairs import PairSnapshot
from services.trust.domain.records import Capabilities, Device, PublicKeys
from services.trust.store import devices, relations
from services.trust.usecases.directory import Directory
from services.trust.usecases.owners import known_owner
from services.trust.usecases.trust_cache import TrustCache
from services.trust.usecases.visibility import View, Visibility

MOST_DEVICES = 20_000


@dataclass(frozen=True, slots=True)
class Tie:
    """Two devices with positive direct trust, by id, and the kinds of their relations."""

    device_a: str
    device_b: str
    direct: float
    relations: tuple[str, ...]


class Graphs:
    """Draws the trust graph."""

    def __init__(self, database: Database, directory: Directory, cache: TrustCache, visibility: Visibility) -> None:
        self._database = database
        self._directory = directory
        self._cache = cache
        self._visibility = visibility

    async def draw(
        self, device_ids: Sequence[str], owner_id: str, least: float, at: float
    ) -> tuple[list[Device], list[Tie], float]:
        """Return devices, the ties that the caller may see, and the moment of the graph."""
        checks.require_finite("least", least, least=0, most=1)
        checks.require_at_most("device_ids", len(device_ids), MOST_DEVICES)
        await self._visibility.note("graph", owner_id or f"{len(device_ids)} devices")
        async with self._database.reading(offload=True) as tx:
            view = await self._visibility.view(tx)
            wanted = await self._wanted(tx, view, device_ids, owner_id)
            pairs, moment = await self._cache.pairs_at(tx, at)
            rows, direct = await asyncio.to_thread(self._rows, pairs, moment, wanted, bool(owner_id), least)
            seen = await self._visible(tx, view, pairs, rows)
            nodes = await self._nodes(tx, view, wanted, pairs, rows[seen])
            related = await _related(tx, nodes)
        ids = {device.number: device.id for device in nodes}
        ends = zip(pairs.low[rows].tolist(), pairs.high[rows].tolist(), direct.tolist(), seen.tolist(), strict=True)
        ties = [Tie(ids[a], ids[b], value, related.between(a, b)) for a, b, value, shown in ends if shown]
        return nodes, ties, moment

    async def _wanted(self, tx: Tx, view: View, device_ids: Sequence[str], owner_id: str) -> Integers | None:
        """Return the numbers of the requested devices; None for all (for a device: all it has visible ties with)."""
        if device_ids:
            entries = await self._directory.require(tx, *device_ids)
            return np.unique([entry.number for entry in entries])
        if owner_id:
            owner = await known_owner(tx, owner_id)
            return np.array(await devices.numbers_of(tx, owner.number), dtype=np.int64)
        return None

    def _rows(
        self, pairs: PairSnapshot, at: float, wanted: Integers | None, with_peers: bool, least: float
    ) -> tuple[Integers, np.ndarray[tuple[int], np.dtype[np.float64]]]:
        """Return the rows of the requested ties and their direct trust."""
        direct = pairs.direct(at, self._cache.parameters, self._cache.rule)
        retained = (direct > 0) & (direct >= least)
        if wanted is not None:
            low, high = np.isin(pairs.low, wanted), np.isin(pairs.high, wanted)
            retained &= (low | high) if with_peers else (low & high)
        rows = np.flatnonzero(retained)
        return rows, direct[rows]

    async def _visible(
        self, tx: Tx, view: View, pairs: PairSnapshot, rows: Integers
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        if view.sees_all:
            return np.ones(len(rows), dtype=np.bool_)
        low, high = pairs.low[rows].tolist(), pairs.high[rows].tolist()
        entries = await self._directory.named(tx, {*low, *high})
        return np.array([view.sees(entries[a], entries[b]) for a, b in zip(low, high, strict=True)], dtype=np.bool_)

    async def _nodes(
        self, tx: Tx, view: View, wanted: Integers | None, pairs: PairSnapshot, rows: Integers
    ) -> list[Device]:
        """Return the requested devices and the ends of ties, by number; a device sees others in outline."""
        numbers = set(pairs.low[rows].tolist()) | set(pairs.high[rows].tolist())
        if view.sees_all:
            requested = await devices.all_numbers(tx, MOST_DEVICES + 1) if wanted is None else wanted.tolist()
            numbers |= set(requested)
        elif view.me is not None and (wanted is None or view.me.number in wanted):
            numbers.add(view.me.number)
        checks.require_at_most("devices in one graph", len(numbers), MOST_DEVICES)
        result = await devices.by_numbers(tx, sorted(numbers))
        if view.sees_all:
            return result
        owner = next((device.owner_id for device in result if view.me and device.number == view.me.number), "")
        return [device if device.owner_id == owner else _outline(device) for device in result]


@dataclass(frozen=True, slots=True)
class _Related:
    """What names the relations of any two of some devices."""

    owners: dict[int, str]
    makes: dict[int, tuple[str, str, str]]
    friends: frozenset[tuple[str, str]]
    stored: dict[tuple[int, int], tuple[str, ...]]

    def between(self, a: int, b: int) -> tuple[str, ...]:
        """Return the kinds of relation of two devices, a < b."""
        kinds = list(self.stored.get((a, b), ()))
        one, other = self.owners[a], self.owners[b]
        if one == other:
            kinds.append("ownership")
        if (min(one, other), max(one, other)) in self.friends:
            kinds.append("friendship")
        if a in self.makes and self.makes[a] == self.makes.get(b):
            kinds.append("parental")
        return tuple(sorted(kinds))


async def _related(tx: Tx, nodes: list[Device]) -> _Related:
    profiles = {device.number: device.profile for device in nodes}
    stored: dict[tuple[int, int], tuple[str, ...]] = {}
    for kind, low, high in await relations.stored_ties(tx):
        if low in profiles and high in profiles:
            stored[low, high] = (*stored.get((low, high), ()), kind)
    friends = await relations.friends(tx)
    return _Related(
        {device.number: device.owner_id for device in nodes},
        {n: (p.kind, p.brand, p.model) for n, p in profiles.items() if p.brand and p.model},
        frozenset((min(pair), max(pair)) for pair in friends),
        stored,
    )


def _outline(device: Device) -> Device:
    """Return a device as strangers may see it: without position and capabilities."""
    profile = replace(device.profile, location=None, capabilities=Capabilities())
    return replace(device, profile=profile, keys=PublicKeys(), last_seen_at=0.0)

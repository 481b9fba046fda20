"""What a new device's pairs inherit from its owner's record. Spec §1.3a: all of the bad and half of the good, so that
registering another device does not clear a bad record."""

from __future__ import annotations

from dataclasses import astuple

from services.kit.database.rows import Row, Tx
from services.trust.domain.evidence import handed_down
from services.trust.store import records, social
from services.trust.usecases.trust_cache import TrustCache

MOST_PAIRS = 20_000
"""Most pairs that a new device inherits, from its owner's latest records."""


class Inheritance:
    """Gives new devices' pairs their owners' record."""

    def __init__(self, cache: TrustCache) -> None:
        self._cache = cache

    async def hand_down(self, tx: Tx, device: int, owner: int, now: float) -> int:
        """Create the inherited pairs of a new device; return how many."""
        known = dict(await records.of_owner(tx, owner, MOST_PAIRS))
        if not known:
            return 0
        await social.locked(tx)
        await self._cache.refresh(tx)
        others = (await records.devices_of(tx, list(known)))[:MOST_PAIRS]
        cached = self._cache.pairs
        first, version = len(cached) + 1, cached.version + 1
        added: list[Row] = []
        given: list[Row] = []
        for place, (other_owner, other) in enumerate(others):
            start = astuple(handed_down(known[other_owner], now, self._cache.parameters))
            added.append((first + place, min(device, other), max(device, other), *start, version))
            given.append((first + place, now, *start))
        if added:
            await social.save_pairs(tx, added, [], version)
            await records.inherit(tx, given)
        return len(added)

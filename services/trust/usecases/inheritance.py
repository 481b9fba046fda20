"""What a new device begins with of its owner's record. Spec §1.3a: bad in full, good halved, so that nobody gets rid of
a bad name by registering another device."""

from __future__ import annotations

from dataclasses import astuple

from services.kit.database.rows import Row, Tx
from services.trust.domain.evidence import handed_down
from services.trust.store import records, social
from services.trust.usecases.trust_cache import TrustCache

MOST_PAIRS = 20_000
"""Pairs a new device begins with, of its owner's latest records."""


class Inheritance:
    """Gives new devices what their owners earned or lost."""

    def __init__(self, memory: TrustCache) -> None:
        self._memory = memory

    async def hand_down(self, tx: Tx, device: int, owner: int, now: float) -> int:
        """Begins the pairs of a device that was just added; how many."""
        known = dict(await records.of_owner(tx, owner, MOST_PAIRS))
        if not known:
            return 0
        await social.locked(tx)
        await self._memory.refresh(tx)
        others = (await records.devices_of(tx, list(known)))[:MOST_PAIRS]
        book = self._memory.book
        first, version = len(book) + 1, book.version + 1
        added: list[Row] = []
        given: list[Row] = []
        for place, (other_owner, other) in enumerate(others):
            start = astuple(handed_down(known[other_owner], now, self._memory.parameters))
            added.append((first + place, min(device, other), max(device, other), *start, version))
            given.append((first + place, now, *start))
        if added:
            await social.save_pairs(tx, added, [], version)
            await records.inherit(tx, given)
        return len(added)

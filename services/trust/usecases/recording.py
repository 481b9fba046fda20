"""Recording interactions: checked whole, written whole, each counted once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from services.kit.caller import require_role
from services.kit.clock import Clock
from services.kit.database import Database
from services.kit.rows import Tx
from services.trust.domain import checks, reports
from services.trust.domain.evidence import EvidenceTable, fold
from services.trust.domain.graph import Integers
from services.trust.domain.reports import PLATFORM, Numbered, Reports
from services.trust.errors import InvalidField
from services.trust.store import audit, social
from services.trust.usecases.directory import Directory
from services.trust.usecases.memory import SocialMemory


class Recording:
    """Takes reports of what devices did with each other."""

    def __init__(self, database: Database, clock: Clock, directory: Directory, memory: SocialMemory) -> None:
        self._database = database
        self._clock = clock
        self._directory = directory
        self._memory = memory

    async def record(self, batch: Reports) -> tuple[int, int]:
        """Records a batch; how many interactions were new and how many had been recorded before."""
        caller = require_role("device", "admin")
        checks.at_most("interactions", len(batch), reports.MOST_INTERACTIONS)
        if not len(batch):
            raise InvalidField("a batch needs at least one interaction")
        reporter = caller.subject if caller.role == "device" else PLATFORM
        now = self._clock.now()
        async with self._database.reading() as tx:
            ends = {*batch.devices_a, *batch.devices_b}
            found = await self._directory.find(tx, {reporter, *ends} if reporter != PLATFORM else ends)
        numbers = {device: entry.number for device, entry in found.items()}
        numbered = await asyncio.to_thread(reports.check, batch, numbers, reporter, now)
        async with self._database.writing() as tx:
            recorded = await self.write(tx, batch, numbered, numbers.get(reporter, 0), now)
            if caller.role == "admin":
                await audit.note(tx, now, "interactions.record", PLATFORM, f"{recorded} interactions")
        return recorded, len(batch) - recorded

    async def write(self, tx: Tx, batch: Reports, ends: Numbered, reporter: int, now: float) -> int:
        """Writes a checked batch inside the caller's transaction; how many were new.

        A time up to the allowed skew ahead counts as now, so that no evidence ever lies in the future. The pairs in
        memory follow the database's version when they are next used, so a transaction that fails leaves no trace.
        """
        await social.locked(tx)
        await self._memory.refresh(tx)
        known = await social.known_ids(tx, reporter, batch.ids)
        fresh = [k for k, item in enumerate(batch.ids) if item not in known] if known else list(range(len(batch)))
        if not fresh:
            return 0
        rows = await asyncio.to_thread(self._fold, batch, ends, np.array(fresh), reporter, now)
        await social.save_pairs(tx, rows.added, rows.changed, self._memory.book.version + 1)
        await social.add(tx, rows.interactions)
        return len(fresh)

    def _fold(self, batch: Reports, ends: Numbered, fresh: Integers, reporter: int, now: float) -> _Rows:
        """What to write: rows of the interactions, of new pairs and of changed ones."""
        book = self._memory.book
        keys, local = np.unique((ends.low[fresh] << 32) | ends.high[fresh], return_inverse=True)
        low, high = keys >> 32, keys & 0xFFFFFFFF
        places = [book.row(*couple) for couple in zip(low.tolist(), high.tolist(), strict=True)]
        is_old = np.array([row is not None for row in places])
        table, good = _widened(*book.evidence(np.array([row for row in places if row is not None], np.int64)), is_old)
        positive = np.array(batch.positive)[fresh]
        durations, times = np.array(batch.durations_seconds)[fresh], np.minimum(np.array(batch.at)[fresh], now)
        after = fold(table, local, positive, durations, times, self._memory.parameters)
        good = good + np.bincount(local[positive], minlength=len(keys))
        numbers = np.array([0 if row is None else row + 1 for row in places])
        numbers[~is_old] = len(book) + 1 + np.arange(np.count_nonzero(~is_old))
        version = np.full(len(keys), book.version + 1)
        state = (after.counts, good, after.positive, after.negative, after.reference_times, version)
        kept = fresh.tolist()
        return _Rows(
            interactions=list(
                zip(
                    repeat(reporter, len(kept)),
                    [batch.ids[k] for k in kept],
                    numbers[local].tolist(),
                    positive.tolist(),
                    durations.tolist(),
                    times.tolist(),
                    [batch.kinds[k] for k in kept],
                    [batch.notes[k] for k in kept],
                    strict=True,
                )
            ),
            added=_tuples(~is_old, numbers, low, high, *state),
            changed=_tuples(is_old, *state, numbers),
        )


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows for the store, in the order of its columns."""

    interactions: list[tuple[Any, ...]]
    added: list[tuple[Any, ...]]
    changed: list[tuple[Any, ...]]


def _tuples(chosen: npt.NDArray[np.bool_], *columns: npt.NDArray[Any]) -> list[tuple[Any, ...]]:
    return list(zip(*(column[chosen].tolist() for column in columns), strict=True))


def _widened(table: EvidenceTable, good: Integers, is_old: npt.NDArray[np.bool_]) -> tuple[EvidenceTable, Integers]:
    """Evidence of known pairs at their places among all pairs of a batch; nothing at the places of new ones."""
    wide = EvidenceTable.empty(len(is_old))
    counts = np.zeros(len(is_old), dtype=np.int64)
    wide.counts[is_old], wide.positive[is_old] = table.counts, table.positive
    wide.negative[is_old], wide.reference_times[is_old] = table.negative, table.reference_times
    counts[is_old] = good
    return wide, counts

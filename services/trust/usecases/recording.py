"""Recording interactions: checked whole, written whole, each counted once."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from sqlalchemy.ext.asyncio import AsyncConnection

from services.kit.caller import require_role
from services.kit.clock import Clock
from services.kit.database import Database
from services.trust import checks, reports
from services.trust.domain.evidence import EvidenceTable, fold
from services.trust.domain.graph import Integers
from services.trust.errors import InvalidField
from services.trust.reports import PLATFORM, Numbered, Reports
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
        async with self._database.reading() as connection:
            ends = {*batch.devices_a, *batch.devices_b}
            found = await self._directory.find(connection, {reporter, *ends} if reporter != PLATFORM else ends)
        numbers = {device: entry.number for device, entry in found.items()}
        numbered = await asyncio.to_thread(reports.check, batch, numbers, reporter, now)
        async with self._database.writing() as connection:
            recorded = await self.write(connection, batch, numbered, numbers.get(reporter, 0), now)
            if caller.role == "admin":
                await audit.note(connection, now, "interactions.record", PLATFORM, f"{recorded} interactions")
        return recorded, len(batch) - recorded

    async def write(
        self, connection: AsyncConnection, batch: Reports, ends: Numbered, reporter: int, now: float
    ) -> int:
        """Writes a checked batch inside the caller's transaction; how many were new.

        A time up to the allowed skew ahead counts as now, so that no evidence ever lies in the future. The pairs in
        memory follow the database's version when they are next used, so a transaction that fails leaves no trace.
        """
        await social.locked(connection)
        await self._memory.refresh(connection)
        known = await social.known_ids(connection, reporter, batch.ids)
        fresh = [k for k, item in enumerate(batch.ids) if item not in known] if known else list(range(len(batch)))
        if not fresh:
            return 0
        rows, added, changed = await asyncio.to_thread(self._fold, batch, ends, np.array(fresh), reporter, now)
        await social.save_pairs(connection, added, changed, self._memory.book.version + 1)
        await social.add(connection, rows)
        return len(fresh)

    def _fold(
        self, batch: Reports, ends: Numbered, fresh: Integers, reporter: int, now: float
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
        """Rows of the interactions, of new pairs and of changed ones."""
        book, version = self._memory.book, self._memory.book.version + 1
        keys, where = np.unique(np.stack((ends.low[fresh], ends.high[fresh])), axis=1, return_inverse=True)
        couples = list(zip(*keys.tolist(), strict=True))
        places = [book.row(low, high) for low, high in couples]
        old = np.array([row for row in places if row is not None], dtype=np.int64)
        is_old = np.array([row is not None for row in places])
        table, good = _widened(*book.evidence(old), is_old)
        positive = np.array(batch.positive)[fresh]
        times = np.minimum(np.array(batch.at)[fresh], now)
        local = where.reshape(-1)
        durations = np.array(batch.durations_seconds)[fresh]
        after = fold(table, local, positive, durations, times, self._memory.parameters)
        good = good + np.bincount(local[positive], minlength=len(couples))
        next_number = iter(range(len(book) + 1, len(book) + 1 + len(couples)))
        numbers = [next(next_number) if row is None else row + 1 for row in places]
        added, changed = _pair_rows(couples, numbers, is_old, after, good, version)
        pair_numbers = np.array(numbers)[local].tolist()
        rows = [
            {
                "reporter": reporter,
                "id": batch.ids[k],
                "pair": pair,
                "positive": batch.positive[k],
                "duration_seconds": batch.durations_seconds[k],
                "at": at,
                "kind": batch.kinds[k],
                "note": batch.notes[k],
            }
            for k, pair, at in zip(fresh.tolist(), pair_numbers, times.tolist(), strict=True)
        ]
        return rows, added, changed


def _widened(table: EvidenceTable, good: Integers, is_old: Any) -> tuple[EvidenceTable, Integers]:
    """Evidence of known pairs at their places among all pairs of a batch; nothing at the places of new ones."""
    wide = EvidenceTable.empty(len(is_old))
    counts = np.zeros(len(is_old), dtype=np.int64)
    wide.counts[is_old], wide.positive[is_old] = table.counts, table.positive
    wide.negative[is_old], wide.reference_times[is_old] = table.negative, table.reference_times
    counts[is_old] = good
    return wide, counts


def _pair_rows(
    couples: list[tuple[int, int]],
    numbers: list[int],
    is_old: Any,
    after: EvidenceTable,
    good: Integers,
    version: int,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    added, changed = [], []
    columns = (after.counts, good, after.positive, after.negative, after.reference_times)
    names = ("count", "positive_count", "positive_sum", "negative_sum", "reference_at", "version")
    lists = [column.tolist() for column in columns]
    for k, (couple, number, old) in enumerate(zip(couples, numbers, is_old.tolist(), strict=True)):
        values = (*(column[k] for column in lists), version)
        if old:
            changed.append({"pair": number, **{f"new_{n}": v for n, v in zip(names, values, strict=True)}})
        else:
            low, high = couple
            added.append({"number": number, "low": low, "high": high, **dict(zip(names, values, strict=True))})
    return added, changed

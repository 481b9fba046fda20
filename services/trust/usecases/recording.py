"""Recording interactions: a batch is checked and written whole, each report counts once, within its caps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.observability.logs import get_logger
from services.kit.rpc.principal import SERVICE, require_role
from services.kit.runtime.clock import Clock
from services.kit.runtime.concurrency import thread_if_large
from services.trust.domain import checks, daily_caps, evidence_batch, reports
from services.trust.domain.evidence import Evidence, EvidenceTable, Pieces, fold, tabled
from services.trust.domain.evidence_batch import Displaced, Draft
from services.trust.domain.graph import Integers
from services.trust.domain.parameters import DAY_SECONDS
from services.trust.domain.records import Basis
from services.trust.domain.reports import PLATFORM, Numbered, Reports
from services.trust.errors import InvalidField
from services.trust.store import audit, records, social
from services.trust.store.encounters import MEETING, Report
from services.trust.usecases.directory import Directory
from services.trust.usecases.encounters import Encountering
from services.trust.usecases.records import add_to_records, debts_of
from services.trust.usecases.trust_cache import TrustCache

_log = get_logger()


@dataclass(frozen=True, slots=True)
class Recorded:
    """How many reports of a batch were new, and how many of those wait for the other end's."""

    new: int
    unconfirmed: int = 0


class Recording:
    """Records reports of what devices did with each other."""

    def __init__(
        self, database: Database, clock: Clock, directory: Directory, cache: TrustCache, encountering: Encountering
    ) -> None:
        self._database = database
        self._clock = clock
        self._directory = directory
        self._cache = cache
        self._encountering = encountering

    async def record(self, batch: Reports) -> tuple[Recorded, int]:
        """Record a batch; return what was new, and how many interactions were already recorded.

        The platform is a witness, an admin vouches for an import, a device reports its own side.
        """
        caller = require_role("device", "admin")
        checks.require_at_most("interactions", len(batch), reports.MOST_INTERACTIONS)
        if not len(batch):
            raise InvalidField("a batch needs at least one interaction")
        reporter = caller.subject if caller.role == "device" else PLATFORM
        source = Basis.ONE if caller.role == "device" else Basis.ADMIN
        if caller.role == SERVICE.role:
            source = Basis.PLATFORM
        now = self._clock.now()
        async with self._database.reading() as tx:
            ends = {*batch.devices_a, *batch.devices_b}
            result = await self._directory.find(tx, {reporter, *ends} if reporter != PLATFORM else ends)
        numbers = {device: entry.number for device, entry in result.items()}
        numbered = await thread_if_large(len(batch), reports.check, batch, numbers, reporter, now)
        async with self._database.writing() as tx:
            recorded = await self.write(
                tx, batch, ends=numbered, reporter=numbers.get(reporter, 0), source=source, now=now
            )
            if caller.role == "admin":
                await audit.note(tx, now, "interactions.record", PLATFORM, f"{recorded.new} interactions")
        return recorded, len(batch) - recorded.new

    async def write(self, tx: Tx, batch: Reports, ends: Numbered, reporter: int, source: Basis, now: float) -> Recorded:
        """Write a checked batch inside the caller's transaction.

        A time up to the allowed skew ahead counts as now, so that no evidence lies in the future. Cached pairs follow
        the database's version at their next use, so a failed transaction leaves no trace.
        """
        await social.locked(tx)
        await self._cache.refresh(tx)
        known = await social.known_ids(tx, reporter, batch.ids)
        fresh = [k for k, item in enumerate(batch.ids) if item not in known] if known else list(range(len(batch)))
        if not fresh:
            return Recorded(0)
        retained = np.array(fresh)
        places = await thread_if_large(len(fresh), self._places, ends.low[retained], ends.high[retained])
        draft = evidence_batch.build_draft(
            places.of,
            np.array(batch.positive)[retained],
            np.array(batch.durations_seconds)[retained],
            np.minimum(np.array(batch.at)[retained], now),
            source,
        )
        draft, displaced = await self._weighed(tx, draft, reporter, now)
        await self._save(
            tx, batch, fresh=fresh, places=places, draft=draft, displaced=displaced, reporter=reporter, now=now
        )
        await self._encountering.note(tx, _reports(batch, fresh, ends, draft), now)
        if displaced.events:
            await self._note_surplus(tx, displaced.events, reporter, now)
        return Recorded(len(fresh), draft.unconfirmed)

    async def _weighed(self, tx: Tx, draft: Draft, reporter: int, now: float) -> tuple[Draft, Displaced]:
        """Weigh each report: confirmed by the other end's, within its pair's day, within its reporter's day."""
        rule, full = self._cache.rule, self._cache.parameters.full_duration_seconds
        known = len(self._cache.pairs)
        if draft.unconfirmed:
            waits = draft.basis == Basis.WAITING
            first, last = float(draft.at[waits].min()), float(draft.at[waits].max())
            old = np.unique(draft.pairs[waits & (draft.pairs <= known)]).tolist()
            since = max(min(first, last) - rule.meeting_window_seconds, now - rule.confirm_seconds)
            since = (since // DAY_SECONDS) * DAY_SECONDS  # whole days, to know how many wait already
            until = (last // DAY_SECONDS + 1) * DAY_SECONDS + rule.meeting_window_seconds
            waiting = await social.waiting(tx, old, since, until) if old else []
            alive = [row for row in waiting if row[3] >= now - rule.confirm_seconds]
            draft = await thread_if_large(len(draft.pairs), evidence_batch.confirm, draft, alive, reporter, now, rule)
        size = len(draft.pairs)
        days = await thread_if_large(size, evidence_batch.days_of, draft)
        begun = await thread_if_large(size, self._begun, draft, days)
        result = await social.used(tx, [(pair, start) for _, pair, start in begun], reporter, full) if begun else []
        used = [(begun[place][0], *rest) for place, *rest in result]
        draft = await thread_if_large(size, evidence_batch.apply_daily_caps, draft, days, used, full, rule)
        bad = draft.at[(draft.basis == Basis.ONE) & ~draft.positive & (draft.shares > 0)]
        if not len(bad):
            return draft, evidence_batch.NOTHING
        span = (float(bad.min()) // DAY_SECONDS) * DAY_SECONDS, (float(bad.max()) // DAY_SECONDS + 1) * DAY_SECONDS
        earlier = await social.against(tx, reporter, *span)
        draft, displaced = await asyncio.to_thread(evidence_batch.keep_newest, draft, earlier, full, rule)
        if displaced.numbers:
            most = int(daily_caps.MOST_REPORTS * rule.pair_day)
            left_out = await social.surplus(tx, displaced.days(), reporter, most)
            displaced = await asyncio.to_thread(evidence_batch.hand_over, displaced, left_out, full)
        return draft, displaced

    def _begun(self, draft: Draft, days: evidence_batch.Days) -> list[tuple[int, int, float]]:
        """Return days that may have counted evidence: place, pair and start, by each pair's latest evidence."""
        cached = self._cache.pairs
        adds = np.zeros(len(days), dtype=np.bool_)
        adds[days.of[draft.shares > 0]] = True
        adds &= days.pairs <= len(cached)
        latest = np.zeros(len(days))
        latest[adds] = cached.evidence(days.pairs[adds] - 1).reference_times
        chosen = np.flatnonzero(adds & (latest >= days.starts))
        return list(zip(chosen.tolist(), days.pairs[chosen].tolist(), days.starts[chosen].tolist(), strict=True))

    def _places(self, low: Integers, high: Integers) -> _Places:
        """Return the numbers of the batch's pairs; new ones follow the last."""
        cached = self._cache.pairs
        keys, local = np.unique((low << 32) | high, return_inverse=True)
        ends = (keys >> 32, keys & 0xFFFFFFFF)
        rows = [cached.row(*couple) for couple in zip(*(end.tolist() for end in ends), strict=True)]
        is_new = np.array([row is None for row in rows])
        numbers = np.array([0 if row is None else row + 1 for row in rows])
        numbers[is_new] = len(cached) + 1 + np.arange(np.count_nonzero(is_new))
        return _Places(numbers[local.reshape(-1)], numbers[is_new], ends[0][is_new], ends[1][is_new])

    async def _save(
        self,
        tx: Tx,
        batch: Reports,
        fresh: list[int],
        places: _Places,
        draft: Draft,
        displaced: Displaced,
        reporter: int,
        now: float,
    ) -> None:
        pieces = draft.pieces().followed_by(displaced.pieces)
        debts = await self._debts(tx, places, pieces, now)
        added, changed = await thread_if_large(len(pieces.pairs), self._folded, places, pieces, debts)
        if added or changed:
            await social.save_pairs(tx, added, changed, self._cache.pairs.version + 1)
        if debts:
            await records.inherit(tx, [(pair, now, *astuple(begun)) for pair, begun in debts.items()])
        rows = zip(
            repeat(reporter, len(fresh)),
            [batch.ids[k] for k in fresh],
            draft.pairs.tolist(),
            draft.positive.tolist(),
            draft.durations_seconds.tolist(),
            draft.at.tolist(),
            [batch.kinds[k] for k in fresh],
            [batch.notes[k] for k in fresh],
            *draft.standing(),
            strict=True,
        )
        await social.add(tx, list(rows))
        await add_to_records(tx, pieces, *self._ends(places, pieces.pairs), self._cache.parameters)
        await social.change(tx, [*draft.changes(), *displaced.changes()])

    async def _debts(self, tx: Tx, places: _Places, pieces: Pieces, now: float) -> dict[int, Evidence]:
        """Return the inherited bad records of pairs with their first evidence, by number."""
        cached = self._cache.pairs
        numbers = np.unique(pieces.pairs)
        old = numbers[numbers <= len(cached)]
        begins = np.concatenate((old[cached.evidence(old - 1).weight == 0], numbers[numbers > len(cached)]))
        if not len(begins):
            return {}
        owed = await debts_of(tx, *self._ends(places, begins), now, self._cache.parameters)
        return {int(begins[place]): debt for place, debt in owed.items()}

    def _folded(
        self, places: _Places, pieces: Pieces, debts: Mapping[int, Evidence]
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Return rows of new pairs and of changed ones, in the store's form."""
        cached = self._cache.pairs
        numbers = np.union1d(places.new, pieces.pairs)
        is_old = numbers <= len(cached)
        table = EvidenceTable.empty(len(numbers))
        table = table.with_rows(is_old, cached.evidence(numbers[is_old] - 1))
        if debts:
            table = table.with_rows(np.searchsorted(numbers, np.array([*debts])), tabled([*debts.values()]))
        local = np.searchsorted(numbers, pieces.pairs)
        after = fold(table, Pieces.of(local, *_rest(pieces)), self._cache.parameters)
        version = np.full(len(numbers), cached.version + 1)
        is_new = ~is_old  # sorted by number, as the new ones are
        added = _tuples(is_new, numbers, *_ends(places, numbers, is_new), *after.columns(), version)
        return added, _tuples(is_old, *after.columns(), version, numbers)

    def _ends(self, places: _Places, pairs: Integers) -> tuple[Integers, Integers]:
        """Return the devices of pairs by number, known and new ones."""
        cached = self._cache.pairs
        old = pairs <= len(cached)
        low, high = np.zeros(len(pairs), dtype=np.int64), np.zeros(len(pairs), dtype=np.int64)
        low[old], high[old] = cached.ends(pairs[old] - 1)
        order = np.argsort(places.new)
        place = order[np.searchsorted(places.new[order], pairs[~old])]
        low[~old], high[~old] = places.low[place], places.high[place]
        return low, high

    async def _note_surplus(self, tx: Tx, events: int, reporter: int, now: float) -> None:
        (entry,) = (await self._directory.named(tx, [reporter])).values()
        most = self._cache.rule.reporter_day
        remark = f"{events} bad reports exceed the {most:g} that count in a day; the newest count"
        await audit.note(tx, now, "evidence.surplus", entry.id, remark)
        _log.warning("a device exceeds its daily cap of bad reports", device=entry.id, reports=events)


@dataclass(frozen=True, slots=True)
class _Places:
    """The pair of each report by number, and the new pairs among them: number and ends."""

    of: Integers
    new: Integers
    low: Integers
    high: Integers


def _reports(batch: Reports, fresh: Sequence[int], ends: Numbered, draft: Draft) -> list[Report]:
    """Reports that may relate devices: meetings confirmed by both ends or by an admin, and good common work."""
    result = []
    for row, k in enumerate(fresh):
        basis = draft.basis[row]
        task = batch.ids[k].partition(".")[0] if basis == Basis.PLATFORM and draft.positive[row] else ""
        if task or (batch.kinds[k] == MEETING and basis in (Basis.BOTH, Basis.ADMIN)):
            moment, seconds = float(draft.moments[row]), float(draft.seconds[row])
            result.append(
                Report(
                    pair=int(draft.pairs[row]),
                    low=int(ends.low[k]),
                    high=int(ends.high[k]),
                    at=moment,
                    seconds=seconds,
                    task=task,
                )
            )
    return result


def _rest(pieces: Pieces) -> tuple[Any, ...]:
    return pieces.positive, pieces.durations_seconds, pieces.at, pieces.witnessed, pieces.shares


def _ends(places: _Places, numbers: Integers, is_new: npt.NDArray[np.bool_]) -> tuple[Integers, Integers]:
    low, high = np.zeros(len(numbers), dtype=np.int64), np.zeros(len(numbers), dtype=np.int64)
    order = np.argsort(places.new)
    low[is_new], high[is_new] = places.low[order], places.high[order]
    return low, high


def _tuples(chosen: npt.NDArray[np.bool_], *columns: npt.NDArray[Any]) -> list[tuple[Any, ...]]:
    return list(zip(*(column[chosen].tolist() for column in columns), strict=True))

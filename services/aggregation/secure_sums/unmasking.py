"""Unmasking of a closing round's secure sums: subtract the clerks' shares from the masked words, check, make the model.

A sum that cannot come from honest devices is discarded and its session fails; the model does not change by it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from coterie.privacy.adaptive import WITHIN, amplitude, share_within
from coterie.records.enums import EventKind, ParticipationState, RoundState, SumState
from coterie.secure_sums import masks
from coterie.secure_sums.contribution import relative_weight
from coterie.secure_sums.grid import Extent
from coterie.secure_sums.terms import Terms
from services.aggregation.domain.accumulator import units
from services.aggregation.domain.masked import MaskedSum
from services.aggregation.domain.records import Event, Participation
from services.aggregation.domain.sum_sessions import OUT_OF_RANGE, CommitteeMember, Share, SumSession
from services.aggregation.rounds.closing import Closer
from services.aggregation.rounds.leases import require_lease
from services.aggregation.rounds.model_update import build_models_from_sums
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.secure_sums.retry import Retry, cheating
from services.aggregation.store import models, rounds, sum_sessions, tasks
from services.aggregation.store.model_files import PARTIAL_PREFIX_BYTES, ModelFiles, write_partial
from services.aggregation.store.opened import OpenedSum, OpenedSums
from services.kit.database.engine import Database
from services.kit.runtime.clock import Clock

CLEAR_LINE = 0
"""Number of the sum in the clear beside secure sums, which clusters number from 1."""
NOT_SERVED = "the clerks could not all serve its update"
LEFT_OUT = "its sum was left out"


@dataclass(frozen=True, slots=True)
class Unmasking:
    """Closes rounds of secure sums on this replica, with the help of the others."""

    database: Database
    model_files: ModelFiles
    closer: Closer
    retry: Retry
    clock: Clock

    async def close(self, live: OpenRound) -> None:
        """Unmask every sum of a closing round, make the model and move the round to settling.

        A sum out of range gets a new session instead.
        """
        task, number = live.task, live.round.number
        async with self.database.reading() as tx:
            live.set_sum_sessions(await sum_sessions.latest_sessions(tx, task.id, number))
            result = await rounds.list_participations(tx, task.id, number)
            states = await models.latest_states(tx, task.id, before=number)
        closing = [session for session in live.sum_sessions.values() if session.state is SumState.CLOSING]
        by_device = {p.device_id: p for p in result}
        survivors = {device: by_device[device] for session in closing for device, _ in session.surviving}
        # In clusters, devices alone deliver noised updates in the clear.
        alone = {
            p.device_id: p for p in result if p.state is ParticipationState.DELIVERED and live.is_clear(p.device_id)
        }
        async with live.lock:
            await self.closer.complete(live, survivors | alone)
            if not await self._open_all(live, closing, by_device):
                return
            opened = await self._opened(live, survivors)
            if alone:
                opened.append(await asyncio.to_thread(clear_sum, self.model_files, live))
            made = await asyncio.to_thread(build_models_from_sums, self.model_files, live, opened, states)
            if alone:
                await self.model_files.blobs.delete(opened.pop().digest)
        judged = await self._verdicts(live, result, survivors)
        ruled = [p for p in judged if p != by_device[p.device_id]]
        findings = await asyncio.to_thread(
            live.strategy.combination.secure_metrics, judged, OpenedSums(self.model_files.blobs, opened).first
        )
        if live.strategy.secure_sums.extra_elements:
            findings |= await asyncio.to_thread(self._count, live, opened)
        await self.closer.store(task, live.round, judged, ruled, made, findings, {})
        live.close()

    # --- opening ------------------------------------------------------------------------------------------------------

    async def _open_all(
        self, live: OpenRound, closing: Sequence[SumSession], by_device: Mapping[str, Participation]
    ) -> bool:
        """Unmask the remaining sums; return False if one is out of range and its session has failed."""
        sound = True
        for session in closing:
            if session.opened:
                continue
            async with self.database.reading() as tx:
                shares = await sum_sessions.list_shares(tx, session.place)
            total = live.masked_sum(self.model_files, session.cohort)
            survivors, terms = len(session.surviving), session.read_terms
            digest, extent = await asyncio.to_thread(open_sum, self.model_files, total, terms, shares)
            budgets = [by_device[device].budget for device, _ in session.surviving]
            fault = live.strategy.secure_sums.find_fault(extent, terms, budgets)
            if fault is not None:
                sound = False
                await self._throw_away(live, session, digest, fault)
                continue
            message = f"{session.name}: the masks are removed from the sum of {survivors} updates"
            event = Event(live.task.id, self.clock.now(), EventKind.SUM_UNMASKED, message, session.round)
            async with self.database.writing() as tx:
                await require_lease(tx, live.round)
                if await sum_sessions.change_session(tx, session.place, expected=SumState.CLOSING, opened=digest):
                    await tasks.add_events(tx, event)
        return sound

    async def _throw_away(self, live: OpenRound, session: SumSession, digest: str, fault: str) -> None:
        async with self.database.reading() as tx:
            before = await sum_sessions.rounds_failed_for(tx, live.task.id, OUT_OF_RANGE, before=session.round)
        reason = f"{OUT_OF_RANGE}: {fault}"
        if live.is_whole and before:
            await self.retry.give_up(live, session, f"{reason}, as in round {max(before)}")
        else:
            await self.retry.fail(live, session, reason)
        await self.model_files.blobs.delete(digest)
        async with self.database.writing() as tx:  # where nothing follows, the round goes on without this sum
            await require_lease(tx, live.round)
            back = {"state": RoundState.OPEN}
            await rounds.change_round(tx, live.task.id, session.round, expected=RoundState.CLOSING, **back)
            await tasks.change_task(tx, live.task.id)

    async def _opened(self, live: OpenRound, survivors: Mapping[str, Participation]) -> list[OpenedSum]:
        async with self.database.reading() as tx:
            present = await sum_sessions.latest_sessions(tx, live.task.id, live.round.number)
        result = []
        for session in present.values():
            if session.state is SumState.CLOSING:
                result.append(opened_sum(session, survivors, live.strategy.secure_sums.extra_elements))
        return result

    def _count(self, live: OpenRound, opened: Sequence[OpenedSum]) -> dict[str, float]:
        """Return the noised share of survivors whose update was within the clip norm."""
        bits, devices = 0.0, 0
        for item in opened:
            session = live.sum_sessions[item.cohort]
            terms = session.read_terms
            last = self.model_files.blobs.read(item.digest, PARTIAL_PREFIX_BYTES + item.elements * 8, 8)
            bits += struct.unpack("<q", last)[0] / amplitude(float(terms.clip_norm), terms.scale)
            devices += len(session.surviving)
        return {WITHIN: share_within(bits, 1, devices)} | live.strategy.terms.clip_metrics(live.round)

    # --- verdicts -----------------------------------------------------------------------------------------------------

    async def _verdicts(
        self, live: OpenRound, delivered: Sequence[Participation], survivors: Mapping[str, Participation]
    ) -> list[Participation]:
        """Return the final participations: a device left out through no fault is dropped without blame."""
        async with self.database.reading() as tx:
            members = await sum_sessions.list_round_members(tx, live.task.id, live.round.number)
        cheats: set[str] = set()
        for session in live.sum_sessions.values():
            cheats |= cheating(session, [member for member in members if member.place == session.place])
        return [p if p.device_id in survivors else _verdict(live, p, cheats, members) for p in delivered]


def _verdict(live: OpenRound, p: Participation, cheats: set[str], members: Sequence[CommitteeMember]) -> Participation:
    session = live.session_of(p.device_id)
    if session is not None and session.state is SumState.FAILED:
        waits = p.state in (ParticipationState.DELIVERED, ParticipationState.ASSIGNED)
        return replace(p, state=ParticipationState.DROPPED, note=LEFT_OUT, excluded_because=LEFT_OUT) if waits else p
    if p.state is not ParticipationState.DELIVERED or session is None:
        return p
    faults = sorted({s.faults[p.device_id] for s in members if s.place == session.place and p.device_id in s.faults})
    if p.device_id in cheats:
        note = f"enough clerks found its masked update wrong: {', '.join(faults)}"
        return replace(p, state=ParticipationState.REJECTED, note=note)
    note = f"{NOT_SERVED}: {', '.join(faults)}" if faults else NOT_SERVED
    return replace(p, state=ParticipationState.DROPPED, note=note, excluded_because=NOT_SERVED)


def opened_sum(session: SumSession, survivors: Mapping[str, Participation], counts: int) -> OpenedSum:
    """Make the unmasked sum of a session; `counts` is the number of its elements after those of the model."""
    terms = session.read_terms
    weight = sum(weight_units(terms, survivors[device].weight) for device, _ in session.surviving)
    factor = float(terms.heaviest) if terms.noise > 0.0 else 1.0
    return OpenedSum(session.cohort, session.opened, terms.elements - counts, terms.scale, weight, factor)


def weight_units(terms: Terms, weight: float) -> int:
    """Return a delivery's weight in the unmasked sum, in units; relative to the heaviest with noise."""
    return units(weight if terms.noise == 0.0 else relative_weight(terms, weight))


def clear_sum(model_files: ModelFiles, live: OpenRound) -> OpenedSum:
    """Make the sum of the clear updates of devices alone; runs in a worker thread."""
    total = live.sum_of(model_files, CLEAR_LINE)
    digest, _ = model_files.blobs.put_pieces(write_partial(total))
    return OpenedSum(CLEAR_LINE, digest, total.layout.elements, live.round.scale, total.weight_units)


def open_sum(
    model_files: ModelFiles, total: MaskedSum, terms: Terms, shares: Mapping[int, Share]
) -> tuple[str, Extent]:
    """Unmask X window by window in a worker thread; return its blob and its extent."""
    extent, kind = Extent(), masks.word_type(terms.bits)

    def pieces() -> Iterator[bytes]:
        yield struct.pack("<q", terms.elements)
        start = 0
        for words in total.words():
            place, size = start * kind.itemsize, len(words) * kind.itemsize
            share_words = (
                np.frombuffer(model_files.blobs.read(shares[k].digest, place, size), kind) for k in range(terms.shares)
            )
            values = masks.opened(words, share_words)
            extent.add(values)
            yield values.astype("<i8").tobytes()
            start += len(words)

    digest, _ = model_files.blobs.put_pieces(pieces())
    return digest, extent

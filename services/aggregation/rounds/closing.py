"""Closing a round: every delivery folded exactly once, new models written, the round moved on in one transaction."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, replace

from coterie.records.words import EventKind, Form, ParticipationState, RoundState
from services.aggregation.domain.records import Delivery, Event, Model, Partial, Participation, Round, Task
from services.aggregation.rounds.live import LiveRound
from services.aggregation.rounds.making import VISIBLE, Made, make
from services.aggregation.store import models, rounds, sums, tasks
from services.aggregation.store.library import Library, read_partial, write_partial
from services.kit.clock import Clock
from services.kit.database import Database

REPLICA_SILENT_SECONDS = 6.0
PARTIAL_WAIT_SECONDS = 10.0
SILENT = "nothing came in time"
_EVENT_OF = {
    ParticipationState.DROPPED: EventKind.DEVICE_DROPPED,
    ParticipationState.REJECTED: EventKind.DEVICE_REJECTED,
    ParticipationState.ORPHANED: EventKind.DEVICE_ORPHANED,
}
"""What is told of a device whose round ends otherwise than it thought."""


@dataclass(frozen=True, slots=True)
class Closer:
    """Closes rounds on this replica, with the help of the others."""

    database: Database
    library: Library
    clock: Clock
    replica: str

    async def close(self, live: LiveRound) -> None:
        """Makes the new model versions of a closing round and moves it to settling."""
        task, number = live.task, live.round.number
        async with self.database.reading() as tx:
            found = await rounds.list_participations(tx, task.id, number)
        for participation in found:
            if participation.state is ParticipationState.DELIVERED:
                live.roster.hear(participation.device_id, participation.members)
        everybody = live.way.verdicts(live.roster, found)
        delivered = {p.device_id: p for p in everybody if p.state is ParticipationState.DELIVERED}
        async with self.database.reading() as tx:
            states = await models.latest_states(tx, task.id, before=number)
        async with live.lock:
            if live.choice.is_mean and any(p.form in VISIBLE for p in delivered.values()):
                await self._complete(live, delivered)
            made = await asyncio.to_thread(make, self.library, live, everybody, states)
            findings = await asyncio.to_thread(live.way.findings, everybody, live.sums())
            odd = await asyncio.to_thread(self._suspicious, live, everybody)
        metrics = mean_metrics(everybody, len(live.bases)) | findings
        before = {p.device_id: p.state for p in found}
        everybody = [made.judged(p) for p in everybody]
        ruled = [p for p in everybody if p.state != before[p.device_id] or made.concerns(p.device_id)]
        await self._store(task, live.round, everybody, ruled, made, metrics, odd)
        live.close()

    async def publish_partial(self, live: LiveRound) -> None:
        """Hands this replica's share of a closing round to the replica that closes it."""
        async with live.lock:
            shares = []
            for line, total in live.sums().items():
                devices = tuple(d.device_id for d in live.folded.values() if d.model_index == line)
                digest, _ = await asyncio.to_thread(self.library.blobs.put_pieces, write_partial(total))
                shares.append(
                    Partial(live.task.id, live.round.number, line, self.replica, digest, total.weight_units, devices)
                )
        async with self.database.writing() as tx:
            for share in shares:
                await sums.put_partial(tx, share)

    async def _complete(self, live: LiveRound, delivered: dict[str, Participation]) -> None:
        """Brings this replica's sums to exactly the delivered updates: others' shares merged, the rest folded."""
        for extra in [d for d in live.folded.values() if d.device_id not in delivered]:
            await asyncio.to_thread(live.unfold, self.library, extra)
        missing = {d: p for d, p in delivered.items() if d not in live.folded and p.form is not Form.REPORT}
        for share in await self._shares(live, missing):
            pieces = read_partial(self.library.blobs, share.digest)
            total = live.sum_of(self.library, share.line)
            await asyncio.to_thread(total.merge, pieces, share.weight_units)
            for device in share.devices:
                missing.pop(device)
        for participation in missing.values():
            await asyncio.to_thread(live.fold, self.library, _delivery(participation))

    async def _shares(self, live: LiveRound, missing: dict[str, Participation]) -> list[Partial]:
        """Shares of living replicas that hold only delivered updates missing here; waits for them a while."""
        if self.database.is_sqlite:
            return []
        deadline = self.clock.now() + PARTIAL_WAIT_SECONDS
        while True:
            now = self.clock.now()
            async with self.database.reading() as tx:
                alive = await sums.list_replicas(tx, now - REPLICA_SILENT_SECONDS) - {self.replica}
                partials = await sums.list_partials(tx, live.task.id, live.round.number)
            usable = [p for p in partials if p.replica != self.replica and missing.keys() >= set(p.devices)]
            awaited = {p.replica for p in missing.values()} & alive - {p.replica for p in partials}
            if not awaited or now > deadline:
                return usable
            await asyncio.sleep(0.05)

    def _suspicious(self, live: LiveRound, everybody: list[Participation]) -> dict[str, str]:
        """Updates that stand out, and why. Runs in a worker thread."""
        return live.way.suspicious(everybody, self.library.layout(*live.bases[0]).elements)

    async def _store(
        self,
        task: Task,
        round_: Round,
        everybody: list[Participation],
        ruled: list[Participation],
        made: Made,
        metrics: dict[str, float],
        odd: dict[str, str],
    ) -> None:
        now = self.clock.now()
        fresh = {line: Model(task.id, line, round_.number, digest, size, now) for line, digest, size in made.models}
        states = [
            Model(task.id, models.state_line(line), round_.number, digest, size, now)
            for line, digest, size in made.states
        ]
        silent = [p for p in everybody if p.state is ParticipationState.ASSIGNED]
        rejected = [replace(p, state=ParticipationState.REJECTED) for p in silent if p.refused]
        dropped = [p.device_id for p in silent if not p.refused]
        async with self.database.writing() as tx:
            current = {m.line: m for m in await models.latest_models(tx, task.id, before=round_.number)} | fresh
            moved = await rounds.change_round(
                tx,
                task.id,
                round_.number,
                expected=RoundState.CLOSING,
                state=RoundState.SETTLING,
                metrics=metrics,
                model_digests=[current[line].digest for line in sorted(current)],
            )
            if not moved:
                return
            await models.add_models(tx, [*fresh.values(), *states])
            await rounds.rule(tx, [*ruled, *rejected])
            await rounds.mark(tx, task.id, round_.number, dropped, state=ParticipationState.DROPPED, note=SILENT)
            await sums.drop_partials(tx, task.id, round_.number)
            await tasks.change_task(tx, task.id)
            count = sum(p.state is ParticipationState.DELIVERED for p in everybody)
            told = [
                (EventKind.ROUND_CLOSED, f"{count} of {len(everybody)} devices delivered", ""),
                *((EventKind.ROUND_COMBINED, sentence, "") for sentence in made.told),
                *((EventKind.DEVICE_DROPPED, SILENT, device) for device in dropped),
                *((EventKind.UPDATE_SUSPICIOUS, why, device) for device, why in odd.items()),
                *((_EVENT_OF[p.state], p.note, p.device_id) for p in ruled if p.state in _EVENT_OF),
            ]
            happened = (Event(task.id, now, kind, message, round_.number, device) for kind, message, device in told)
            await tasks.add_events(tx, *happened)


def mean_metrics(everybody: list[Participation], lines: int = 1) -> dict[str, float]:
    """Means of the delivered metrics, weighted by samples; with several model lines each line's own too: "loss[0]"."""
    total: dict[str, float] = defaultdict(float)
    weight: dict[str, float] = defaultdict(float)
    for participation in everybody:
        if participation.state is ParticipationState.DELIVERED:
            for name, value in participation.metrics.items():
                for told in (name, f"{name}[{participation.model_index}]") if lines > 1 else (name,):
                    total[told] += value * participation.samples
                    weight[told] += participation.samples
    return {name: total[name] / weight[name] for name in sorted(total) if weight[name] > 0}


def _delivery(p: Participation) -> Delivery:
    return Delivery(
        p.task_id,
        p.round,
        p.device_id,
        p.digest,
        p.payload_bytes,
        p.form or Form.MEAN,
        p.weight,
        p.metrics,
        p.model_index,
        p.budget,
    )

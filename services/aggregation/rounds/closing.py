"""Closing a round: every delivery folded exactly once, new models written, the round moved on in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from coterie.records.enums import EventKind, Form, ParticipationState, RoundState, SumState
from services.aggregation.domain import measurements as figures
from services.aggregation.domain.records import Delivery, Event, Model, Partial, Participation, Round, Task
from services.aggregation.rounds import evaluation
from services.aggregation.rounds.leases import Leases, demand
from services.aggregation.rounds.model_update import Made, make
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.store import models, rounds, sum_sessions, sums, tasks
from services.aggregation.store.model_files import ModelFiles, read_partial, write_partial
from services.aggregation.strategies import strategy_for
from services.aggregation.strategies.base import VISIBLE
from services.kit.database.engine import Database
from services.kit.database.rows import batches
from services.kit.observability.metrics import ROUND_SECONDS
from services.kit.runtime.clock import Clock

PARTIAL_WAIT_SECONDS = 10.0
FETCHED_AT_ONCE = 16
"""Updates of a far store that are read at a time."""
SILENT = "nothing came in time"
AT_WORK = "at work when the buffer was full"
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
    model_files: ModelFiles
    clock: Clock
    replica: str
    leases: Leases

    async def close(self, live: OpenRound) -> bool:
        """Makes the new model versions of a closing round and moves it to settling.

        False when updates are refused, now that all are there, and the task's rule cannot bear the rest: the round is
        then open again without them.
        """
        task, number = live.task, live.round.number
        async with self.database.reading() as tx:
            result = await rounds.list_participations(tx, task.id, number)
            states = await models.latest_states(tx, task.id, before=number)
        for participation in result:
            if participation.state is ParticipationState.DELIVERED:
                live.roster.record_reports(participation.device_id, participation.members)
        refused = live.strategy.combination.rejections(result, live.round.norm_bounds)
        if refused and not live.choice.is_mean and live.unbearable_without(refused):
            await self._go_back(live, [p for p in _without(result, refused) if p.device_id in refused])
            return False
        everybody = live.strategy.combination.outcomes(live.roster, _without(result, refused))
        delivered = {p.device_id: p for p in everybody if p.state is ParticipationState.DELIVERED}
        weights = (
            live.strategy.delivery.batch_weights(live.roster, list(delivered.values()))
            if live.buffering is not None
            else {}
        )
        async with live.lock:
            forms = {p.form for p in delivered.values()} | {d.form for d in live.folded.values()}
            if live.choice.is_mean and not forms.isdisjoint(VISIBLE):
                await self.complete(live, delivered)
                if weights:
                    await asyncio.to_thread(self._reweigh, live, weights)
            everybody = [replace(p, weight=weights.get(p.device_id, p.weight)) for p in everybody]
            made, findings, odd = await asyncio.to_thread(self._conclude, live, everybody, states)
        metrics = mean_metrics(everybody, len(live.bases)) | findings
        before = {p.device_id: (p.state, p.weight) for p in result}
        metrics |= live.strategy.terms.clip_metrics(live.round)
        everybody = [made.judged(p) for p in everybody]
        ruled = [p for p in everybody if (p.state, p.weight) != before[p.device_id] or made.concerns(p.device_id)]
        await self.store(task, live.round, everybody, ruled, made, metrics, odd)
        async with live.lock:  # an update that came too late may just be taken out again
            live.close()
        return True

    async def _go_back(self, live: OpenRound, rejected: Sequence[Participation]) -> None:
        """Opens a closing round again without these, for what is left is too little for the task's rule."""
        place, now = (live.task.id, live.round.number), self.clock.now()
        events = [Event(live.task.id, now, _EVENT_OF[p.state], p.note, p.round, p.device_id) for p in rejected]
        async with self.database.writing() as tx:
            if await rounds.change_round(tx, *place, expected=RoundState.CLOSING, state=RoundState.OPEN):
                await rounds.rule(tx, rejected)
                await tasks.add_events(tx, *events)
                await tasks.change_task(tx, live.task.id)

    async def publish_partial(self, live: OpenRound) -> None:
        """Hands this replica's share of a closing round to the replica that closes it; once, unless it has changed."""
        async with live.lock:
            if live.handed_over == live.folded.keys():
                return
            handed, shares = frozenset(live.folded), []
            for line, total in live.sums().items():
                devices = tuple(d.device_id for d in live.folded.values() if live.line_of(d) == line)
                digest, _ = await asyncio.to_thread(self.model_files.blobs.put_pieces, write_partial(total))
                shares.append(
                    Partial(live.task.id, live.round.number, line, self.replica, digest, total.weight_units, devices)
                )
        # One that holds nothing, since it was started again for one, says so: nobody need wait for it.
        nothing = Partial(live.task.id, live.round.number, 0, self.replica, "", 0, ())
        async with self.database.writing() as tx:
            round_ = await rounds.find_round(tx, live.task.id, live.round.number, lock=True)
            awaited = round_ is not None and round_.state is RoundState.CLOSING
            for share in (shares or [nothing]) if awaited else ():
                await sums.put_partial(tx, share)
        live.handed_over = handed
        if not awaited:
            await self._discard({share.digest for share in shares})

    async def complete(self, live: OpenRound, delivered: dict[str, Participation]) -> None:
        """Brings this replica's sums to exactly the delivered updates: others' shares merged, the rest folded."""
        for extra in [d for d in live.folded.values() if d.device_id not in delivered]:
            await asyncio.to_thread(live.unfold, self.model_files, extra)
        missing = {d: p for d, p in delivered.items() if d not in live.folded and p.form is not Form.REPORT}
        for share in await self._shares(live, missing):
            pieces = read_partial(self.model_files.blobs, share.digest)
            total = live.sum_of(self.model_files, share.line)
            await asyncio.to_thread(total.merge, pieces, share.weight_units)
            for device in share.devices:
                # Noted as folded: a closing that is tried again must not merge it twice.
                live.folded[device] = delivery_of(missing.pop(device))
        waiting = [delivery_of(participation) for participation in missing.values()]
        for some in batches(waiting, FETCHED_AT_ONCE):
            fetched = await asyncio.gather(*(self.model_files.ahead(delivery) for delivery in some))
            for delivery, whole in zip(some, fetched, strict=True):
                await asyncio.to_thread(live.fold, self.model_files, delivery, whole)

    def _reweigh(self, live: OpenRound, weights: Mapping[str, float]) -> None:
        """Gives updates of a full buffer the weight they have beside each other; exact, and the same when repeated."""
        for device, weight in weights.items():
            folded = live.folded.get(device)
            if folded is not None and folded.weight != weight:
                live.unfold(self.model_files, folded)
                live.fold(self.model_files, replace(folded, weight=weight))

    async def _shares(self, live: OpenRound, missing: dict[str, Participation]) -> list[Partial]:
        """Shares of living replicas that hold only delivered updates missing here; waits for them a while."""
        if self.database.is_sqlite:
            return []
        deadline = self.clock.now() + PARTIAL_WAIT_SECONDS
        while True:
            now = self.clock.now()
            async with self.database.reading() as tx:
                alive = await self.leases.living(tx) - {self.replica}
                partials = await sums.list_partials(tx, live.task.id, live.round.number)
            others = [p for p in partials if p.replica != self.replica and p.devices]
            usable = [p for p in others if missing.keys() >= set(p.devices)]
            awaited = {p.replica for p in missing.values()} & alive - {p.replica for p in partials}
            if not awaited or now > deadline:
                return usable
            await asyncio.sleep(0.05)

    def _conclude(
        self, live: OpenRound, everybody: list[Participation], states: Mapping[int, Model]
    ) -> tuple[Made, dict[str, float], dict[str, str]]:
        """New models, what the strategy found, and which updates stand out and why. Runs in a worker thread."""
        made = make(self.model_files, live, everybody, states)
        odd = live.strategy.combination.flagged(everybody, self.model_files.layout(*live.bases[0]).elements)
        return made, live.strategy.combination.metrics(everybody, live.sums()), odd

    async def store(
        self,
        task: Task,
        round_: Round,
        everybody: list[Participation],
        ruled: list[Participation],
        made: Made,
        metrics: dict[str, float],
        odd: dict[str, str],
    ) -> None:
        """Writes what a round made, and moves it to settling, in one transaction."""
        now = self.clock.now()
        fresh = {line: Model(task.id, line, round_.number, digest, size, now) for line, digest, size in made.models}
        states = [
            Model(task.id, models.state_line(line), round_.number, digest, size, now)
            for line, digest, size in made.states
        ]
        silent = [p for p in everybody if p.state is ParticipationState.ASSIGNED]
        rejected = [replace(p, state=ParticipationState.REJECTED) for p in silent if p.refused]
        dropped = [p.device_id for p in silent if not p.refused]
        busy: list[str] = []
        if task.specification.buffering is not None:
            busy, dropped = dropped, []
        async with self.database.writing() as tx:
            await demand(tx, round_)
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
            await evaluation.record(tx, task, round_, everybody, now)
            await rounds.rule(tx, [*ruled, *rejected])
            await rounds.mark(tx, task.id, round_.number, dropped, state=ParticipationState.DROPPED, note=SILENT)
            await rounds.mark(tx, task.id, round_.number, busy, state=ParticipationState.IDLE, note=AT_WORK)
            partials = set() if self.database.is_sqlite else await sums.drop_partials(tx, task.id, round_.number)
            if task.specification.has_secure_sums:
                await sum_sessions.end_sessions(tx, task.id, round_.number, SumState.SETTLING, only=[SumState.CLOSING])
            await tasks.change_task(tx, task.id)
            count = sum(p.state is ParticipationState.DELIVERED for p in everybody)
            told = [
                (EventKind.ROUND_CLOSED, f"{count} of {len(everybody)} devices delivered", ""),
                *((EventKind.ROUND_COMBINED, sentence, "") for sentence in made.told),
                *((EventKind.DEVICE_DROPPED, SILENT, device) for device in dropped),
                *((EventKind.UPDATE_SUSPICIOUS, why, device) for device, why in odd.items()),
                *(
                    (EventKind.ROUND_WARNED, why, "")
                    for why in strategy_for(task.specification).combination.convergence_warnings(metrics)
                ),
                *((_EVENT_OF[p.state], p.note, p.device_id) for p in ruled if p.state in _EVENT_OF),
            ]
            happened = (Event(task.id, now, kind, message, round_.number, device) for kind, message, device in told)
            await tasks.add_events(tx, *happened)
            tx.after_commit(lambda: ROUND_SECONDS.observe(max(0.0, now - round_.opened_at)))
        await self._discard(partials)

    async def _discard(self, digests: set[str]) -> None:
        """Delete files of partial sums, except those that another row names."""
        if digests:
            async with self.database.reading() as tx:
                unused = digests - await models.digests_in_use(tx, digests)
            await self.model_files.blobs.delete_all(unused)


def mean_metrics(everybody: list[Participation], lines: int = 1) -> dict[str, float]:
    """Means of the delivered metrics by samples measured; with several model lines each line's too: "loss[0]"."""
    told = [p for p in everybody if p.state is ParticipationState.DELIVERED and p.metrics]
    split = {p.device_id: figures.split(p.metrics, float(p.samples)) for p in told}
    weights = figures.counted({device: samples for device, (samples, _) in split.items()})
    parts = [(weights[p.device_id], split[p.device_id][1]) for p in told]
    if lines > 1:
        by_line = zip(told, parts, strict=True)
        parts += [(w, {f"{name}[{p.model_index}]": value for name, value in m.items()}) for p, (w, m) in by_line]
    return figures.means(parts)


def _without(everybody: list[Participation], refused: Mapping[str, str]) -> list[Participation]:
    rejected = ParticipationState.REJECTED
    return [
        replace(p, state=rejected, note=f"rejected: {refused[p.device_id]}") if p.device_id in refused else p
        for p in everybody
    ]


def delivery_of(p: Participation) -> Delivery:
    """What a participant has delivered."""
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
        base=p.base,
    )

"""Close a round: fold every delivery exactly once, write new models, and move to settling in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from coterie.records.enums import EventKind, Form, ParticipationState, RoundState, SumState
from services.aggregation.domain import measurements as figures
from services.aggregation.domain.records import Delivery, Event, Model, Partial, Participation, Round, Task
from services.aggregation.rounds import evaluation
from services.aggregation.rounds.leases import Leases, require_lease
from services.aggregation.rounds.model_update import NewModels, build_models
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
"""Concurrent reads of updates from a remote store."""
SILENT = "delivered nothing in time"
AT_WORK = "at work when the buffer was full"
_EVENT_OF = {
    ParticipationState.DROPPED: EventKind.DEVICE_DROPPED,
    ParticipationState.REJECTED: EventKind.DEVICE_REJECTED,
    ParticipationState.ORPHANED: EventKind.DEVICE_ORPHANED,
}
"""Event about a device whose round ends in an unexpected state."""


@dataclass(frozen=True, slots=True)
class Closer:
    """Close rounds on this replica, with partial sums of the others."""

    database: Database
    model_files: ModelFiles
    clock: Clock
    replica: str
    leases: Leases

    async def close(self, open_round: OpenRound) -> bool:
        """Make the new model versions of a closing round and move it to settling.

        False when the complete set of updates shows some to be bad and the task's rule cannot combine the rest: the
        round is then open again without them.
        """
        task, number = open_round.task, open_round.round.number
        async with self.database.reading() as tx:
            result = await rounds.list_participations(tx, task.id, number)
            states = await models.latest_states(tx, task.id, before=number)
        for participation in result:
            if participation.state is ParticipationState.DELIVERED:
                open_round.roster.record_reports(participation.device_id, participation.members)
        refused = open_round.strategy.combination.rejections(result, open_round.round.norm_bounds)
        if refused and not open_round.choice.is_mean and open_round.unbearable_without(refused):
            await self._reopen_without(open_round, [p for p in _without(result, refused) if p.device_id in refused])
            return False
        participations = open_round.strategy.combination.outcomes(open_round.roster, _without(result, refused))
        delivered = {p.device_id: p for p in participations if p.state is ParticipationState.DELIVERED}
        weights = (
            open_round.strategy.delivery.batch_weights(open_round.roster, list(delivered.values()))
            if open_round.buffering is not None
            else {}
        )
        async with open_round.lock:
            forms = {p.form for p in delivered.values()} | {d.form for d in open_round.folded.values()}
            if open_round.choice.is_mean and not forms.isdisjoint(VISIBLE):
                await self.complete(open_round, delivered)
                if weights:
                    await asyncio.to_thread(self._reweigh, open_round, weights)
            participations = [replace(p, weight=weights.get(p.device_id, p.weight)) for p in participations]
            new_models, findings, suspicious = await asyncio.to_thread(
                self._conclude, open_round, participations, states
            )
        metrics = mean_metrics(participations, len(open_round.bases)) | findings
        before = {p.device_id: (p.state, p.weight) for p in result}
        metrics |= open_round.strategy.terms.clip_metrics(open_round.round)
        participations = [new_models.annotated(p) for p in participations]
        changed = [
            p for p in participations if (p.state, p.weight) != before[p.device_id] or new_models.concerns(p.device_id)
        ]
        await self.store(task, open_round.round, participations, changed, new_models, metrics, suspicious)
        async with open_round.lock:  # a late update may be in the middle of its unfold
            open_round.close()
        return True

    async def _reopen_without(self, open_round: OpenRound, rejected: Sequence[Participation]) -> None:
        """Open a closing round again without these updates, because the task's rule cannot combine the rest."""
        place, now = (open_round.task.id, open_round.round.number), self.clock.now()
        events = [Event(open_round.task.id, now, _EVENT_OF[p.state], p.note, p.round, p.device_id) for p in rejected]
        async with self.database.writing() as tx:
            if await rounds.change_round(tx, *place, expected=RoundState.CLOSING, state=RoundState.OPEN):
                await rounds.rule(tx, rejected)
                await tasks.add_events(tx, *events)
                await tasks.change_task(tx, open_round.task.id)

    async def publish_partial(self, open_round: OpenRound) -> None:
        """Publish this replica's partial sums to the replica that closes the round; again only after a change."""
        task_id, number = open_round.task.id, open_round.round.number
        async with open_round.lock:
            if open_round.handed_over == open_round.folded.keys():
                return
            handed, shares = frozenset(open_round.folded), []
            for line, total in open_round.sums().items():
                devices = tuple(d.device_id for d in open_round.folded.values() if open_round.line_of(d) == line)
                digest, _ = await asyncio.to_thread(self.model_files.blobs.put_pieces, write_partial(total))
                shares.append(
                    Partial(
                        open_round.task.id,
                        open_round.round.number,
                        line,
                        self.replica,
                        digest,
                        total.weight_units,
                        devices,
                    )
                )
        # A replica without updates (restarted, for example) publishes an empty share, so that the closer does not wait.
        nothing = Partial(task_id, number, 0, self.replica, "", 0, ())
        async with self.database.writing() as tx:
            round_ = await rounds.find_round(tx, task_id, number, lock=True)
            awaited = round_ is not None and round_.state is RoundState.CLOSING
            for share in (shares or [nothing]) if awaited else ():
                await sums.put_partial(tx, share)
        open_round.handed_over = handed
        if not awaited:
            await self._discard({share.digest for share in shares})

    async def complete(self, open_round: OpenRound, delivered: dict[str, Participation]) -> None:
        """Bring this replica's sums to exactly the delivered updates: merge others' shares, fold the rest."""
        for extra in [d for d in open_round.folded.values() if d.device_id not in delivered]:
            await asyncio.to_thread(open_round.unfold, self.model_files, extra)
        missing = {d: p for d, p in delivered.items() if d not in open_round.folded and p.form is not Form.REPORT}
        for share in await self._shares(open_round, missing):
            pieces = read_partial(self.model_files.blobs, share.digest)
            total = open_round.sum_of(self.model_files, share.line)
            await asyncio.to_thread(total.merge, pieces, share.weight_units)
            for device in share.devices:
                # Recorded as folded, so that a retried closing does not merge it twice.
                open_round.folded[device] = delivery_of(missing.pop(device))
        waiting = [delivery_of(participation) for participation in missing.values()]
        for some in batches(waiting, FETCHED_AT_ONCE):
            fetched = await asyncio.gather(*(self.model_files.ahead(delivery) for delivery in some))
            for delivery, whole in zip(some, fetched, strict=True):
                await asyncio.to_thread(open_round.fold, self.model_files, delivery, whole)

    def _reweigh(self, open_round: OpenRound, weights: Mapping[str, float]) -> None:
        """Reweigh the updates of a full buffer relative to each other; exact and idempotent."""
        for device, weight in weights.items():
            folded = open_round.folded.get(device)
            if folded is not None and folded.weight != weight:
                open_round.unfold(self.model_files, folded)
                open_round.fold(self.model_files, replace(folded, weight=weight))

    async def _shares(self, open_round: OpenRound, missing: dict[str, Participation]) -> list[Partial]:
        """Return live replicas' shares of only delivered updates missing here; wait up to `PARTIAL_WAIT_SECONDS`."""
        if self.database.is_sqlite:
            return []
        deadline = self.clock.now() + PARTIAL_WAIT_SECONDS
        while True:
            now = self.clock.now()
            async with self.database.reading() as tx:
                alive = await self.leases.living(tx) - {self.replica}
                partials = await sums.list_partials(tx, open_round.task.id, open_round.round.number)
            others = [p for p in partials if p.replica != self.replica and p.devices]
            usable = [p for p in others if missing.keys() >= set(p.devices)]
            awaited = {p.replica for p in missing.values()} & alive - {p.replica for p in partials}
            if not awaited or now > deadline:
                return usable
            await asyncio.sleep(0.05)

    def _conclude(
        self, open_round: OpenRound, participations: list[Participation], states: Mapping[int, Model]
    ) -> tuple[NewModels, dict[str, float], dict[str, str]]:
        """Return new models, the strategy's metrics, and suspicious updates with reasons. Runs in a worker thread."""
        new_models = build_models(self.model_files, open_round, participations, states)
        suspicious = open_round.strategy.combination.flagged(
            participations, self.model_files.layout(*open_round.bases[0]).elements
        )
        return new_models, open_round.strategy.combination.metrics(participations, open_round.sums()), suspicious

    async def store(
        self,
        task: Task,
        round_: Round,
        participations: list[Participation],
        changed: list[Participation],
        new_models: NewModels,
        metrics: dict[str, float],
        suspicious: dict[str, str],
    ) -> None:
        """Write the outcome of a round, and move it to settling, in one transaction."""
        now = self.clock.now()
        fresh = {
            line: Model(task.id, line, round_.number, digest, size, now) for line, digest, size in new_models.models
        }
        states = [
            Model(task.id, models.state_line(line), round_.number, digest, size, now)
            for line, digest, size in new_models.states
        ]
        silent = [p for p in participations if p.state is ParticipationState.ASSIGNED]
        rejected = [replace(p, state=ParticipationState.REJECTED) for p in silent if p.refused]
        dropped = [p.device_id for p in silent if not p.refused]
        busy: list[str] = []
        if task.specification.buffering is not None:
            busy, dropped = dropped, []
        async with self.database.writing() as tx:
            await require_lease(tx, round_)
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
            await evaluation.record(tx, task, round_, participations, now)
            await rounds.rule(tx, [*changed, *rejected])
            await rounds.mark(tx, task.id, round_.number, dropped, state=ParticipationState.DROPPED, note=SILENT)
            await rounds.mark(tx, task.id, round_.number, busy, state=ParticipationState.IDLE, note=AT_WORK)
            partials = set() if self.database.is_sqlite else await sums.drop_partials(tx, task.id, round_.number)
            if task.specification.has_secure_sums:
                await sum_sessions.end_sessions(tx, task.id, round_.number, SumState.SETTLING, only=[SumState.CLOSING])
            await tasks.change_task(tx, task.id)
            count = sum(p.state is ParticipationState.DELIVERED for p in participations)
            entries = [
                (EventKind.ROUND_CLOSED, f"{count} of {len(participations)} devices delivered", ""),
                *((EventKind.ROUND_COMBINED, sentence, "") for sentence in new_models.summaries),
                *((EventKind.DEVICE_DROPPED, SILENT, device) for device in dropped),
                *((EventKind.UPDATE_SUSPICIOUS, why, device) for device, why in suspicious.items()),
                *(
                    (EventKind.ROUND_WARNED, why, "")
                    for why in strategy_for(task.specification).combination.convergence_warnings(metrics)
                ),
                *((_EVENT_OF[p.state], p.note, p.device_id) for p in changed if p.state in _EVENT_OF),
            ]
            events = (Event(task.id, now, kind, message, round_.number, device) for kind, message, device in entries)
            await tasks.add_events(tx, *events)
            tx.after_commit(lambda: ROUND_SECONDS.observe(max(0.0, now - round_.opened_at)))
        await self._discard(partials)

    async def _discard(self, digests: set[str]) -> None:
        """Delete files of partial sums, except those that another row names."""
        if digests:
            async with self.database.reading() as tx:
                unused = digests - await models.digests_in_use(tx, digests)
            await self.model_files.blobs.delete_all(unused)


def mean_metrics(participations: list[Participation], lines: int = 1) -> dict[str, float]:
    """Average the delivered metrics by samples measured; with several model lines also for each line: "loss[0]"."""
    measured = [p for p in participations if p.state is ParticipationState.DELIVERED and p.metrics]
    split = {p.device_id: figures.split(p.metrics, float(p.samples)) for p in measured}
    weights = figures.counted({device: samples for device, (samples, _) in split.items()})
    parts = [(weights[p.device_id], split[p.device_id][1]) for p in measured]
    if lines > 1:
        by_line = zip(measured, parts, strict=True)
        parts += [(w, {f"{name}[{p.model_index}]": value for name, value in m.items()}) for p, (w, m) in by_line]
    return figures.means(parts)


def _without(participations: list[Participation], refused: Mapping[str, str]) -> list[Participation]:
    rejected = ParticipationState.REJECTED
    return [
        replace(p, state=rejected, note=f"rejected: {refused[p.device_id]}") if p.device_id in refused else p
        for p in participations
    ]


def delivery_of(p: Participation) -> Delivery:
    """Return the delivery that a participation records."""
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

"""Open a round: choose participants, plan, quote, and store it all in one transaction.

Every call is idempotent (topology and pricing store plan and quote by task and round), so a crash only repeats them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType

from coterie.records.enums import EnrolmentState, EventKind, ParticipationState, RoundState, TaskState
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from coterie_api.trust.v1 import trust_pb2 as trust
from services.aggregation.domain.accumulator import choose_scale
from services.aggregation.domain.records import Enrolment, Event, Participation, Round, Task
from services.aggregation.domain.rounds import OUT, choose_participants
from services.aggregation.domain.rules.choice import choose
from services.aggregation.domain.rules.weighting import trust_weights
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.domain.sum_sessions import OUT_OF_RANGE
from services.aggregation.domain.tasks import needed
from services.aggregation.rounds.assignment import make_items, participations_of
from services.aggregation.rounds.measured_runs import earlier_runs
from services.aggregation.rounds.round_inputs import RoundInputs, disputed_heads, key_of, without_silent
from services.aggregation.secure_sums.committee_selection import first_sessions
from services.aggregation.store import models, rounds, sum_sessions, tasks
from services.aggregation.strategies import strategy_for
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.rpc.enums import number as unit_number
from services.kit.rpc.parameters import struct_of
from services.kit.rpc.service_clients import ServiceClients
from services.kit.rpc.trust_matrix import read_matrix
from services.kit.runtime.clock import Clock

SPOILT_ROUNDS = 3
"""Consecutive rounds with a sum out of range after which a device is excluded from the task."""
SPOILS = f"its sum was out of range in {SPOILT_ROUNDS} consecutive rounds, in changing cohorts; the task excludes it"
SILENT_SECONDS = 60.0
"""A cluster head silent this long (four heartbeats) is treated as lost."""


@dataclass(frozen=True, slots=True)
class Opener:
    """Open rounds, and open them again for another attempt."""

    database: Database
    clients: ServiceClients
    clock: Clock

    async def open(
        self, task: Task, number: int, attempt: int = 1, lost: Mapping[str, Sequence[str]] | None = None
    ) -> bool:
        """Open a round, or open it again for the devices that have not delivered; False with too few devices.

        `lost` names devices that will not deliver, each with the members it leaves behind: the round then opens again
        for these members alone, and the others go on with the work they have.
        """
        strategy = strategy_for(task.specification)
        async with self.database.reading() as tx:
            enrolled = await tasks.list_enrolments(tx, task.id, state=EnrolmentState.ACTIVE)
            current = await models.latest_models(tx, task.id, before=number)
            previous = await models.latest_models(tx, task.id, before=number - 1) if number > 1 else []
            earlier = await rounds.last_participations(tx, task.id, number)
            last = await rounds.find_round(tx, task.id, number - 1) if number > 1 else None
            last_line = await rounds.last_lines(tx, task.id) if len(current) > 1 else {}
            strangers = await tasks.list_strangers(tx, task.id)
            disputes = await rounds.disputes(tx, task.id) if strategy.settlement.has_disputes else {}
        if attempt == 1 and number > SPOILT_ROUNDS and SumRules.of(task.specification.parameters).cohort_devices:
            spoilers = await self._leave_out_spoilers(task, number, enrolled)
            enrolled = [enrolment for enrolment in enrolled if enrolment.device_id not in spoilers]
        devices = await self.active_devices(enrolled)
        devices = without_silent(devices, enrolled, earlier, last, task.specification)
        spec = task.specification
        chosen = choose_participants(list(devices), spec.most_devices(len(devices)), spec.seed, number)
        if len(chosen) < task.specification.min_devices:
            return False
        alone = disputed_heads(disputes, devices)
        if attempt > 1:
            async with self.database.reading() as tx:
                stored = await rounds.list_participations(tx, task.id, number)
            # Learning of further strangers would cost an attempt each; the next round's plan knows of this one.
            declined = {p.device_id for p in stored if p.state is ParticipationState.DECLINED}
            alone |= declined & strangers.keys()
            chosen = strategy.round_plan.replanned_devices(
                strategy.progress.build_roster(stored, attempt), chosen, _left_behind(lost)
            )
            if not chosen:
                return False
        by_id = {e.device_id: e for e in enrolled}
        norms = (
            ({} if last is None else last.norm_bounds)
            | strategy.combination.next_norm_bounds(earlier)
            | strategy.terms.next_clip_bound(last)
        )
        verdicts = {p.device_id: p.note for p in earlier if p.judged_by}
        assignments = [by_id[device_id] for device_id in chosen]
        inputs = RoundInputs(assignments, devices, current, previous, strategy.terms.bounds, norms, verdicts)
        key = _plan_key(number, attempt, inputs, alone)
        plan = strategy.round_plan.adapt(await self.plan(task, number, key, inputs, last_line, strangers, alone))
        quoted = {assignment.device_id for assignment in plan.assignments if strategy.round_plan.is_quoted(assignment)}
        quote = await self.quote(
            task, number, [assignment for assignment in inputs.assignments if assignment.device_id in quoted], inputs
        )
        trust_weight = await self.trust_weight(task, chosen)
        await self._store(task, number, attempt, inputs, plan, quote, trust_weight, lost or {})
        return True

    async def _leave_out_spoilers(self, task: Task, number: int, enrolled: Sequence[Enrolment]) -> set[str]:
        """Withdraw devices whose sum was out of range in `SPOILT_ROUNDS` consecutive rounds, in changing cohorts."""
        last = range(number - SPOILT_ROUNDS, number)
        now = self.clock.now()
        async with self.database.writing() as tx:
            spoilt = set.intersection(*await sum_sessions.out_of_range(tx, task.id, last, OUT_OF_RANGE))
            for enrolment in enrolled:
                if enrolment.device_id in spoilt:
                    await tasks.put_enrolment(tx, replace(enrolment, state=EnrolmentState.WITHDRAWN))
                    event = Event(task.id, now, EventKind.DEVICE_REJECTED, SPOILS, number, enrolment.device_id)
                    await tasks.add_events(tx, event)
        return spoilt

    async def trust_weight(self, task: Task, chosen: Sequence[str]) -> dict[str, float]:
        """Return the largest weight of each device's update in this round, where the task's rule goes by trust."""
        choice = choose(task.specification.rule, task.specification.parameters_json)
        if not choice.by_trust:
            return {}
        # Devices the publisher knows count whether or not they take part.
        asked = [*chosen, *sorted(set(choice.known) - set(chosen))]
        matrix = await read_matrix(self.clients.trust, asked)
        known = [place for place, device in enumerate(asked) if device in choice.known]
        result = trust_weights(len(asked), matrix, known)
        return dict(zip(asked, result.tolist(), strict=True))

    async def unreachable(self, device_ids: Sequence[str]) -> set[str]:
        """Return the devices that are revoked, or whose heartbeats stopped `SILENT_SECONDS` ago."""
        reply = await self.clients.registry.GetDevices(trust.GetDevicesRequest(device_ids=device_ids))
        oldest = self.clock.now() - SILENT_SECONDS
        return {d.id for d in reply.devices if d.state != words.DEVICE_STATE_ACTIVE or 0 < d.last_seen_at < oldest}

    async def active_devices(self, enrolled: Sequence[Enrolment]) -> dict[str, trust.Device]:
        """Return these devices as the registry has them, without revoked ones."""
        ids = [e.device_id for e in enrolled]
        result: dict[str, trust.Device] = {}
        for start in range(0, len(ids), 10_000):
            reply = await self.clients.registry.GetDevices(
                trust.GetDevicesRequest(device_ids=ids[start : start + 10_000])
            )
            result |= {device.id: device for device in reply.devices if device.state == words.DEVICE_STATE_ACTIVE}
        return result

    async def plan(
        self,
        task: Task,
        number: int,
        key: str,
        inputs: RoundInputs,
        last_line: Mapping[str, int] = MappingProxyType({}),
        strangers: Mapping[str, list[str]] = MappingProxyType({}),
        alone: Collection[str] = (),
    ) -> topology.Plan:
        """Return topology's plan of the round; the same `key` gives the same plan."""
        spec, counted = task.specification, inputs.counted()
        measured = await self._measured(task) if strategy_for(spec).round_plan.fits_quality else []
        return await self.clients.topology.MakePlan(
            topology.MakePlanRequest(
                task_id=task.id,
                key=key,
                topology=spec.topology,
                privacy=spec.privacy,
                parameters=struct_of(spec.parameters_json),
                participants=[
                    topology.Participant(
                        device_id=assignment.device_id,
                        samples=max(1, round(counted[assignment.device_id])),
                        non_iid=assignment.non_iid,
                        model_index=last_line.get(assignment.device_id, -1),
                        strangers=strangers.get(assignment.device_id, ()),
                        unclustered=assignment.device_id in alone,
                    )
                    for assignment in inputs.assignments
                ],
                round=number,
                keep_if_stable=True,
                models=len(spec.model_digests),
                privacy_unit=unit_number(spec.privacy_unit),
                model_bytes=max(model.size_bytes for model in inputs.current),
                round_seconds=spec.round_seconds,
                measured=measured,
            ),
            timeout=300.0,
        )

    async def _measured(self, task: Task) -> list[topology.MeasuredTask]:
        """Return the publisher's measurements of its earlier tasks of this model."""
        async with self.database.reading() as tx:
            return [topology.MeasuredTask(**asdict(run)) for run in await earlier_runs(tx, task)]

    async def quote(self, task: Task, number: int, assignments: list[Enrolment], inputs: RoundInputs) -> pricing.Quote:
        """Return the offers to these devices for the round; an offer once made stands."""
        spec, counted = task.specification, inputs.counted()
        return await self.clients.pricing.QuoteRound(
            pricing.QuoteRoundRequest(
                task_id=task.id,
                round=number,
                incentive=spec.incentive,
                parameters=struct_of(spec.parameters_json),
                participants=[
                    pricing.Participant(
                        device_id=assignment.device_id,
                        samples=assignment.samples,
                        counted=counted[assignment.device_id],
                    )
                    for assignment in assignments
                ],
                rounds=spec.rounds,
                model_bytes=max((model.size_bytes for model in inputs.current), default=0),
                clip_norm=strategy_for(spec).terms.clip_norm,
            ),
            timeout=120.0,
        )

    async def _store(
        self,
        task: Task,
        number: int,
        attempt: int,
        inputs: RoundInputs,
        plan: topology.Plan,
        quote: pricing.Quote,
        trust_weight: Mapping[str, float],
        lost: Mapping[str, Sequence[str]],
    ) -> None:
        spec, now = task.specification, self.clock.now()
        served = sum(assignment.role != words.ROLE_IDLE for assignment in plan.assignments)
        # A plan may serve fewer devices than `min_devices`: the quorum cannot exceed the devices served.
        quorum = needed(served, spec.quorum, min(spec.min_devices, served))
        round_ = Round(
            task_id=task.id,
            number=number,
            attempt=attempt,
            state=RoundState.OPEN,
            quorum=quorum if spec.buffering is None else spec.buffering.size,
            scale=choose_scale(
                len(plan.assignments), strategy_for(spec).round_plan.largest_weight(plan, inputs.counted())
            ),
            opened_at=now,
            deadline_at=now + spec.round_seconds,
            plan_version=plan.version,
            norm_bounds=inputs.norm_bounds,
        )
        items = make_items(task, round_, plan, quote, inputs.devices, trust_weight, inputs.current, inputs.previous)
        for device_id, verdict in inputs.verdicts.items():
            if device_id in items:
                items[device_id].verdict = verdict
        sums = first_sessions(task, round_, plan, inputs.devices, inputs.counted())
        participations = participations_of(round_, plan, items, inputs.devices, inputs.samples)
        async with self.database.writing() as tx:
            fresh = await tasks.find_task(tx, task.id, lock=True)
            if fresh is None or fresh.state is not TaskState.RUNNING:
                return
            existing = await rounds.find_round(tx, task.id, number, lock=True)
            if existing is None:
                await rounds.add_round(tx, round_, participations)
                await sum_sessions.add_sessions(tx, sums)
                await tasks.change_task(tx, task.id, round=number)
            elif existing.state is RoundState.OPEN and existing.attempt < attempt:
                if not await self._reopen(tx, task, existing, round_, participations, lost):
                    return
            else:
                return
            served = sum(p.state is ParticipationState.ASSIGNED for p in participations)
            message = f"round {number} opened for {served} devices, {round_.quorum} needed"
            if lost:
                message = f"{', '.join(sorted(lost))} delivered nothing; replanned for the {served} left behind"
            kind = EventKind.ROUND_OPENED if attempt == 1 else EventKind.ROUND_REOPENED
            await tasks.add_events(tx, Event(task.id, now, kind, message, number))

    async def _reopen(
        self,
        tx: Tx,
        task: Task,
        existing: Round,
        fresh: Round,
        participations: list[Participation],
        lost: Mapping[str, Sequence[str]],
    ) -> bool:
        """Give new work to the replanned devices that start again; delivered updates stay (same scale, same model).

        Devices that a lost one did not leave behind go on with the work they have. False, without a change, when the
        plan is stale: a device taken for lost, or a replanned one, has delivered meanwhile.
        """
        stored = await rounds.list_participations(tx, task.id, existing.number)
        standing = {p.device_id: p.state for p in stored}
        strategy, planned = strategy_for(task.specification), [p.device_id for p in participations]
        still = strategy.round_plan.replanned_devices(
            strategy.progress.build_roster(stored, existing.attempt), planned, _left_behind(lost)
        )
        if len(still) < len(planned) or any(standing.get(d) is ParticipationState.DELIVERED for d in lost):
            return False
        again = [p for p in participations if strategy.round_plan.is_reassigned(standing.get(p.device_id))]
        waited_for = {device for device, state in standing.items() if state is ParticipationState.ASSIGNED}
        dropped = ParticipationState.DROPPED
        if lost:
            silent = [device for device in lost if device in waited_for]
            await rounds.mark(
                tx, task.id, existing.number, silent, state=dropped, note=strategy.progress.lost_relay_note
            )
            there = sum(d not in lost and state not in OUT for d, state in standing.items())
            fresh = replace(fresh, quorum=needed(there, task.specification.quorum, task.specification.min_devices))
        else:
            gone = sorted(waited_for - {p.device_id for p in again})
            await rounds.mark(tx, task.id, existing.number, gone, state=dropped, note="no longer in the task")
        fresh = replace(fresh, scale=existing.scale, quorum=min(fresh.quorum, existing.quorum))
        known = [p for p in again if p.device_id in standing]
        await rounds.add_participations(tx, known)
        await rounds.change_round(
            tx,
            task.id,
            existing.number,
            expected=RoundState.OPEN,
            attempt=fresh.attempt,
            quorum=fresh.quorum,
            opened_at=fresh.opened_at,
            deadline_at=fresh.deadline_at,
            plan_version=fresh.plan_version,
        )
        await tasks.change_task(tx, task.id)
        return True


def _left_behind(lost: Mapping[str, Sequence[str]] | None) -> set[str]:
    return {device for devices in (lost or {}).values() for device in devices}


def _plan_key(number: int, attempt: int, inputs: RoundInputs, alone: Collection[str]) -> str:
    """Return the idempotency key of a plan; from the second attempt on, it depends on the devices planned for."""
    if attempt == 1:
        return f"{number}.1"
    return f"{number}.{attempt}.{key_of(inputs.samples, alone)}"

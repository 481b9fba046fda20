"""Settle a round: pay, record the devices' conduct, charge privacy; every call is idempotent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from coterie.parameters.pricing import ContributionParameters
from coterie.records.enums import ClerkState, EventKind, ParticipationState, RoundState, SumState
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from coterie_api.trust.v1 import trust_pb2 as trust
from services.aggregation.domain.records import Event, Participation, Round, Task
from services.aggregation.domain.rounds import conduct_of
from services.aggregation.domain.rules.outlying import DISTANCE, FAR, ROUNDS, is_outlying
from services.aggregation.rounds.leases import require_lease
from services.aggregation.store import contributions, models, rounds, sum_sessions, tasks
from services.aggregation.strategies import strategy_for
from services.aggregation.strategies.base import Strategy
from services.kit.database.blobs import BlobStore
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.rpc.claims import claim_message
from services.kit.rpc.enums import number
from services.kit.rpc.service_clients import ServiceClients
from services.kit.runtime.clock import Clock

OBJECTION_SECONDS = 15.0
"""Time after the end of a task in which members may object to verdicts of its last round."""
DISPUTED_SECONDS = 6.0
"""Duration of the interaction that a disputed verdict counts as: a tenth of a whole one by the registry's defaults."""
WHOLE_INTERACTION_SECONDS = 86_400.0
"""A round done together counts as a whole interaction, however short: longer than any full-duration threshold."""


CONDUCT_OF_CLERK = {
    ClerkState.SILENT: ParticipationState.DROPPED,
    ClerkState.OUTVOTED: ParticipationState.REJECTED,
}
"""What a clerk's conduct is recorded as."""


@dataclass(frozen=True, slots=True)
class Settler:
    """Settle rounds and release what they no longer need."""

    database: Database
    clients: ServiceClients
    blobs: BlobStore
    clock: Clock

    async def is_ready(self, task: Task, round_: Round) -> bool:
        """Whether a round can settle: one paid by contribution waits up to `evaluation_seconds` for its evaluator."""
        if not strategy_for(task.specification).settlement.is_evaluated:
            return True
        async with self.database.reading() as tx:
            values = await contributions.values_of(tx, task.id, round_.number)
            new_models = await models.latest_models(tx, task.id, before=round_.number + 1)
            participations = await rounds.list_participations(tx, task.id, round_.number)
        delivered = [p.device_id for p in participations if p.state is ParticipationState.DELIVERED]
        if values or not delivered:
            return True
        patience = ContributionParameters.of(task.specification.parameters).evaluation_seconds
        if self.clock.now() < new_models[0].created_at + patience:
            return False
        # Stored before any payment, so that a late valuation changes nothing.
        message = f"no evaluator valued the round in {patience:g} s: no device is paid, the pot stays in the escrow"
        async with self.database.writing() as tx:
            await tasks.find_task(tx, task.id, lock=True)
            if not await contributions.values_of(tx, task.id, round_.number):
                await contributions.value_round(tx, task.id, round_.number, dict.fromkeys(delivered, (0.0, 0.0)))
                happened = Event(task.id, self.clock.now(), EventKind.ROUND_VALUED, message, round_.number)
                await tasks.add_events(tx, happened)
        return True

    async def settle(self, task: Task, round_: Round) -> bool:
        """Pay and record a settling round and move it to done; True when the escrow is spent."""
        strategy = strategy_for(task.specification)
        async with self.database.reading() as tx:
            participations = await rounds.list_participations(tx, task.id, round_.number)
            values = (
                await contributions.values_of(tx, task.id, round_.number) if strategy.settlement.is_evaluated else {}
            )
        plans = await self._plans(task, strategy.settlement.required_plans(participations))
        settlement = await self.clients.ledger.SettleRound(
            pricing.SettleRoundRequest(
                task_id=task.id,
                round=round_.number,
                work=[work_of(strategy, p, values) for p in participations if p.state is not ParticipationState.IDLE],
                payoffs=strategy.settlement.payoffs(participations, plans),
            ),
            timeout=120.0,
        )
        await self._record_conduct(task, round_, participations, disputable=False)
        if strategy.settlement.has_disputes and round_.number > 1:
            await self._record_disputable_verdicts(task, round_.number - 1)
        await self.blobs.delete_all(await self._finish(task, round_, settlement))
        return settlement.exhausted

    async def record_last_verdicts(self, task: Task) -> float:
        """Record the verdicts of an ended task's last round; return seconds left for objections, 0 when recorded."""
        if not strategy_for(task.specification).settlement.has_disputes:
            return 0.0
        for last in (task.round, task.round - 1):
            async with self.database.reading() as tx:
                round_ = await rounds.find_round(tx, task.id, last)
                participations = await rounds.list_participations(tx, task.id, last)
            if round_ is not None and round_.state is RoundState.DONE:
                left = task.ended_at + OBJECTION_SECONDS - self.clock.now()
                if left > 0.0 and any(p.judged_by and not p.objection for p in participations):
                    return left
                await self._record_conduct(task, round_, participations, disputable=True)
                break
        return 0.0

    async def _record_disputable_verdicts(self, task: Task, last: int) -> None:
        async with self.database.reading() as tx:
            round_ = await rounds.find_round(tx, task.id, last)
            participations = await rounds.list_participations(tx, task.id, last)
        if round_ is not None and any(p.judged_by for p in participations):
            await self._record_conduct(task, round_, participations, disputable=True)

    async def _plans(self, task: Task, versions: Collection[int]) -> dict[int, topology.Plan]:
        get = self.clients.topology.GetPlan
        return {v: await get(topology.GetPlanRequest(task_id=task.id, version=v)) for v in sorted(versions)}

    async def _conduct(self, task: Task, round_: Round, participations: list[Participation]) -> list[Participation]:
        """Return participations whose conduct counts: without those the rule excluded; a device far from all others in
        several rounds counts as rejected."""
        earlier: list[dict[str, Participation]] = []
        if any(p.metrics.get(DISTANCE, 0.0) > FAR for p in participations):
            async with self.database.reading() as tx:
                for number in range(round_.number - 1, max(round_.number - ROUNDS, 0), -1):
                    result = await rounds.list_participations(tx, task.id, number)
                    earlier.append({p.device_id: p for p in result})
        annotated = []
        for p in participations:
            history = [p.metrics, *(past[p.device_id].metrics for past in earlier if p.device_id in past)]
            if is_outlying(history):
                annotated.append(replace(p, state=ParticipationState.REJECTED))
            elif not p.excluded_because:
                annotated.append(p)
        return annotated

    async def _record_conduct(
        self, task: Task, round_: Round, participations: list[Participation], *, disputable: bool
    ) -> None:
        """Record the devices' conduct: at once, or a round later where only a head vouches for it (`disputable`)."""
        conduct, strategy = await self._conduct(task, round_, participations), strategy_for(task.specification)
        proved = strategy.settlement.verified_devices(participations)
        annotated = {p.device_id for p in conduct if p.judged_by}
        chosen = [
            pair
            for pair in strategy.settlement.witnesses(conduct, round_.number)
            if annotated.isdisjoint(pair) != disputable
        ]
        interactions = [
            trust.Interaction(
                id=f"{task.id}.{round_.number}.{a[-12:]}.{b[-12:]}",
                device_a=a,
                device_b=b,
                positive=worst is ParticipationState.DELIVERED,
                duration_seconds=seconds,
                at=round_.opened_at,
                reporter="platform",
                kind=worst,
                note=f"round {round_.number} of {task.id}{', disputed' if seconds < WHOLE_INTERACTION_SECONDS else ''}",
            )
            for a, b, worst, seconds in _interactions(chosen, conduct)
            if worst is not ParticipationState.DELIVERED or {a, b} <= proved
        ]
        if task.specification.has_secure_sums and not disputable:
            interactions += await self._clerk_interactions(task, round_)
        for start in range(0, len(interactions), 5_000):
            await self.clients.trust.RecordInteractions(
                trust.RecordInteractionsRequest(interactions=interactions[start : start + 5_000]), timeout=60.0
            )

    async def _clerk_interactions(self, task: Task, round_: Round) -> list[trust.Interaction]:
        """Return interactions of silent and outvoted clerks with the serving members of their committee."""
        async with self.database.reading() as tx:
            members = await sum_sessions.list_round_members(tx, task.id, round_.number)
        return [
            trust.Interaction(
                id=f"{task.id}.{round_.number}.clerk{member.cohort}-{member.session_number}.{member.device_id[-12:]}.{other.device_id[-12:]}",
                device_a=min(member.device_id, other.device_id),
                device_b=max(member.device_id, other.device_id),
                positive=False,
                duration_seconds=WHOLE_INTERACTION_SECONDS,
                at=round_.opened_at,
                reporter="platform",
                kind=CONDUCT_OF_CLERK[member.state],
                note=f"clerk in round {round_.number} of {task.id}",
            )
            for member in members
            if member.state in CONDUCT_OF_CLERK
            for other in members
            if other.place == member.place and other.device_id != member.device_id and other.state is ClerkState.SERVING
        ]

    async def _finish(self, task: Task, round_: Round, settlement: pricing.Settlement) -> set[str]:
        """Move the round to done; return digests of blobs no longer needed, empty if it was done before."""
        now = self.clock.now()
        async with self.database.writing() as tx:
            await require_lease(tx, round_)
            moved = await rounds.change_round(
                tx, task.id, round_.number, expected=RoundState.SETTLING, state=RoundState.DONE, done_at=now
            )
            if task.specification.has_secure_sums:
                await sum_sessions.end_sessions(tx, task.id, round_.number, SumState.DONE, only=[SumState.SETTLING])
            if not moved:
                return set()
            await tasks.change_task(tx, task.id)
            if settlement.paid_microcredits:
                paid = f"{settlement.paid_microcredits / 1e6:.6f} credits paid to {len(settlement.payments)} devices"
                await tasks.add_events(tx, Event(task.id, now, EventKind.ROUND_SETTLED, paid, round_.number))
            return await self._release_blobs(tx, task, round_)

    async def _release_blobs(self, tx: Tx, task: Task, round_: Round) -> set[str]:
        """Delete the letters of a finished round and expired updates; return digests that no row names any more."""
        over = round_.number - task.specification.kept_rounds
        digests = await rounds.release(tx, task.id, over)
        digests |= set(await models.take_letters(tx, task.id, round_.number - 1))
        digests |= set(await models.take_states(tx, task.id, over))
        if task.specification.has_secure_sums:
            digests |= await sum_sessions.blobs_of_round(tx, task.id, round_.number)
        # The verdicts of the round before are recorded now, so its work items are no longer needed.
        await rounds.forget_work(tx, task.id, min(over, round_.number - 1))
        return digests - await models.digests_in_use(tx, digests) if digests else set()

    async def clear(self, task: Task) -> None:
        """Delete the letters of an ended task's last round, and the updates of a round that was never done."""
        async with self.database.writing() as tx:
            digests = set(await models.take_letters(tx, task.id, task.round))
            digests |= await rounds.given_up(tx, task.id, task.round)
            unused = digests - await models.digests_in_use(tx, digests) if digests else set()
        await self.blobs.delete_all(unused)


def _interactions(
    pairs: Sequence[tuple[str, str]], participations: Sequence[Participation]
) -> Iterator[tuple[str, str, ParticipationState, float]]:
    """Yield each pair with the worse state of the two and the interaction's duration in seconds.

    Where a member objects, the platform knows only that it and its head disagree, which costs both a little.
    """
    objecting = {p.device_id: p for p in participations if p.objection}
    states = {p.device_id: p.state for p in participations if p.device_id not in objecting}
    yield from ((a, b, worst, WHOLE_INTERACTION_SECONDS) for a, b, worst in conduct_of(pairs, states))
    for a, b in pairs:
        for member, head in ((a, b), (b, a)):
            if member in objecting and objecting[member].judged_by == head:
                yield a, b, objecting[member].state, DISPUTED_SECONDS


def work_of(strategy: Strategy, p: Participation, values: Mapping[str, float]) -> pricing.Work:
    """Return a participant's work, as pricing needs it."""
    spent = p.privacy if p.state is ParticipationState.DELIVERED else []
    return pricing.Work(
        device_id=p.device_id,
        owner_id=p.owner_id,
        outcome=number(p.state),
        budget=strategy.settlement.paid_budget(p),
        quality=strategy.settlement.share(p, values),
        privacy=[claim_message(charge) for charge in spent],
        excluded_because=p.excluded_because,
    )

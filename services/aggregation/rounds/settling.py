"""Settling a round: pay, record how everybody behaved, charge privacy; each call repeatable."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from coterie.records.words import EventKind, ParticipationState, RoundState
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from coterie_api.trust.v1 import trust_pb2 as trust
from services.aggregation.domain.records import Event, Participation, Round, Task
from services.aggregation.domain.rounds import conduct_of
from services.aggregation.domain.rules.outlying import DISTANCE, FAR, ROUNDS, is_outlying
from services.aggregation.store import models, rounds, tasks
from services.aggregation.ways import way_for
from services.aggregation.ways.base import Way
from services.kit.blobs import BlobStore
from services.kit.clock import Clock
from services.kit.database import Database
from services.kit.stubs import Upstreams
from services.kit.words import number

WHOLE_INTERACTION_SECONDS = 86_400.0
"""A round done together counts as a whole interaction, however short: longer than any full-duration threshold."""


@dataclass(frozen=True, slots=True)
class Settler:
    """Settles rounds."""

    database: Database
    upstreams: Upstreams
    blobs: BlobStore
    clock: Clock

    async def settle(self, task: Task, round_: Round) -> bool:
        """Pays and records a settling round and moves it to done; True when the escrow is spent."""
        async with self.database.reading() as tx:
            everybody = await rounds.list_participations(tx, task.id, round_.number)
        way = way_for(task.specification)
        settlement = await self.upstreams.ledger.SettleRound(
            pricing.SettleRoundRequest(
                task_id=task.id,
                round=round_.number,
                work=[work_of(way, p) for p in everybody if p.state is not ParticipationState.IDLE],
                payoffs=way.payoffs(everybody, await self._plans(task, way.plans_paid(everybody))),
            ),
            timeout=120.0,
        )
        await self._record_conduct(task, round_, await self._conduct(task, round_, everybody))
        done = await self._finish(task, round_, settlement)
        if done:
            await self._sweep(task, round_, everybody)
        return settlement.exhausted

    async def _plans(self, task: Task, versions: Collection[int]) -> dict[int, topology.Plan]:
        get = self.upstreams.topology.GetPlan
        return {v: await get(topology.GetPlanRequest(task_id=task.id, version=v)) for v in sorted(versions)}

    async def _conduct(self, task: Task, round_: Round, everybody: list[Participation]) -> list[Participation]:
        """Everybody whose conduct counts: one set aside by the rule is left out, one that was far outside all others
        in several rounds counts as rejected."""
        earlier: list[dict[str, Participation]] = []
        if any(p.metrics.get(DISTANCE, 0.0) > FAR for p in everybody):
            async with self.database.reading() as tx:
                for number in range(round_.number - 1, max(round_.number - ROUNDS, 0), -1):
                    found = await rounds.list_participations(tx, task.id, number)
                    earlier.append({p.device_id: p for p in found})
        judged = []
        for p in everybody:
            history = [p.metrics, *(past[p.device_id].metrics for past in earlier if p.device_id in past)]
            if is_outlying(history):
                judged.append(replace(p, state=ParticipationState.REJECTED))
            elif not p.aside:
                judged.append(p)
        return judged

    async def _record_conduct(self, task: Task, round_: Round, everybody: list[Participation]) -> None:
        pairs = way_for(task.specification).witnesses(everybody, round_.number)
        interactions = [
            trust.Interaction(
                id=f"{task.id}.{round_.number}.{a[-12:]}.{b[-12:]}",
                device_a=a,
                device_b=b,
                positive=worst is ParticipationState.DELIVERED,
                duration_seconds=WHOLE_INTERACTION_SECONDS,
                at=round_.opened_at,
                reporter="platform",
                kind=worst,
                note=f"round {round_.number} of {task.id}",
            )
            for a, b, worst in conduct_of(pairs, {p.device_id: p.state for p in everybody})
        ]
        for start in range(0, len(interactions), 5_000):
            await self.upstreams.trust.RecordInteractions(
                trust.RecordInteractionsRequest(interactions=interactions[start : start + 5_000]), timeout=60.0
            )

    async def _finish(self, task: Task, round_: Round, settlement: pricing.Settlement) -> bool:
        now = self.clock.now()
        async with self.database.writing() as tx:
            moved = await rounds.change_round(
                tx, task.id, round_.number, expected=RoundState.SETTLING, state=RoundState.DONE, done_at=now
            )
            if moved:
                await tasks.change_task(tx, task.id)
                if settlement.paid_microcredits:
                    paid = (
                        f"{settlement.paid_microcredits / 1e6:.6f} credits paid to {len(settlement.payments)} devices"
                    )
                    await tasks.add_events(tx, Event(task.id, now, EventKind.ROUND_SETTLED, paid, round_.number))
        return moved

    async def _sweep(self, task: Task, round_: Round, everybody: list[Participation]) -> None:
        """Forgets the updates and letters of a round that is over."""
        async with self.database.writing() as tx:
            digests = {p.digest for p in everybody if p.digest}
            digests |= set(await models.take_letters(tx, task.id, round_.number - 1))
            digests |= set(await models.take_states(tx, task.id, round_.number))
            unused = digests - await models.digests_in_use(tx, digests) if digests else set()
        for digest in unused:
            await self.blobs.delete(digest)


def work_of(way: Way, p: Participation) -> pricing.Work:
    """What pricing is told."""
    spent = p.privacy if p.state is ParticipationState.DELIVERED else []
    return pricing.Work(
        device_id=p.device_id,
        owner_id=p.owner_id,
        outcome=number(p.state),
        budget=way.sold(p),
        quality=p.weight,
        privacy=[pricing.PrivacyCharge(**charge) for charge in spent],
    )

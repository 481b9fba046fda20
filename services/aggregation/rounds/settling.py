"""Settling a round: pay, record how everybody behaved, charge privacy; each call repeatable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from coterie_api.trust.v1 import trust_pb2 as trust
from services.aggregation.domain import clusters
from services.aggregation.domain.records import Event, Participation, Round, Task
from services.aggregation.domain.rounds import witness_pairs
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.rounds.assignment import heads_of
from services.aggregation.rounds.upstreams import Upstreams
from services.aggregation.store import models, rounds, tasks
from services.kit.blobs import BlobStore
from services.kit.clock import Clock
from services.kit.database import Database

WHOLE_INTERACTION_SECONDS = 86_400.0
"""A round done together counts as a whole interaction, however short: longer than any full-duration threshold."""
_JUDGED = ("delivered", "rejected", "dropped", "late")


@dataclass(frozen=True, slots=True)
class Settler:
    """Settles rounds."""

    database: Database
    upstreams: Upstreams
    blobs: BlobStore
    clock: Clock

    async def settle(self, task: Task, round_: Round) -> bool:
        """Pays and records a round in state "settling", moves it to "done"; True when the escrow is spent."""
        async with self.database.reading() as tx:
            everybody = await rounds.list_participations(tx, task.id, round_.number)
        owed = await self._owed(task, round_, everybody) if pays_clusters(task.specification) else {}
        settlement = await self.upstreams.ledger.SettleRound(
            pricing.SettleRoundRequest(
                task_id=task.id,
                round=round_.number,
                work=[work_of(p, owed.get(p.device_id, -1)) for p in everybody if p.state != "idle"],
            ),
            timeout=120.0,
        )
        await self._record_conduct(task, round_, everybody)
        done = await self._finish(task, round_, settlement)
        if done:
            await self._sweep(task, round_, everybody)
        return settlement.exhausted

    async def _owed(self, task: Task, round_: Round, everybody: list[Participation]) -> dict[str, int]:
        """Micro-credits by device: the payoffs of the clusters as they came about, at the task's price per point."""
        items = {p.device_id: pb.WorkItem.FromString(p.work) for p in everybody if p.state == "delivered"}
        payoffs: dict[str, float] = {}
        for version in {item.plan_version for item in items.values()}:
            plan = await self.upstreams.topology.GetPlan(topology.GetPlanRequest(task_id=task.id, version=version))
            of_plan = {device: item for device, item in items.items() if item.plan_version == version}
            payoffs |= realised_payoffs(of_plan, json.loads(plan.details_json))
        told = task.specification.parameters.get("pricing", {})
        pot = int(told.get("round_microcredits", 0))
        if task.specification.incentive == "payoff":  # whose quote shares the escrow out when the task names no pot
            quote = await self.upstreams.pricing.GetQuote(pricing.GetQuoteRequest(task_id=task.id, round=round_.number))
            pot = int(json.loads(quote.details_json or "{}").get("pot_microcredits", 0))
        return clusters.owed(payoffs, float(told.get("credits_per_point", 0.0)) * 1e6, pot)

    async def _record_conduct(self, task: Task, round_: Round, everybody: list[Participation]) -> None:
        conduct = {p.device_id: p.state for p in everybody if p.state in _JUDGED or p.state == "orphaned"}
        pairs = witness_pairs([d for d in conduct if conduct[d] in _JUDGED], task.specification.seed, round_.number)
        if task.specification.topology == "clusters":
            pairs = clusters.conduct_pairs(everybody, ties_of(everybody), task.specification.seed, round_.number)
        interactions = []
        for a, b in pairs:
            both = [conduct[d] for d in (a, b) if conduct.get(d, "") in _JUDGED]
            worst = max(both, key=_JUDGED.index, default="")
            if not worst or (worst == "delivered" and len(both) < 2):
                continue  # nothing can be said of a device that declined, or that its head left behind
            interactions.append(
                trust.Interaction(
                    id=f"{task.id}.{round_.number}.{a[-12:]}.{b[-12:]}",
                    device_a=a,
                    device_b=b,
                    positive=worst == "delivered",
                    duration_seconds=WHOLE_INTERACTION_SECONDS,
                    at=round_.opened_at,
                    reporter="platform",
                    kind=worst,
                    note=f"round {round_.number} of {task.id}",
                )
            )
        for start in range(0, len(interactions), 5_000):
            await self.upstreams.trust.RecordInteractions(
                trust.RecordInteractionsRequest(interactions=interactions[start : start + 5_000]), timeout=60.0
            )

    async def _finish(self, task: Task, round_: Round, settlement: pricing.Settlement) -> bool:
        now = self.clock.now()
        async with self.database.writing() as tx:
            moved = await rounds.change_round(
                tx, task.id, round_.number, expected="settling", state="done", done_at=now
            )
            if moved:
                await tasks.change_task(tx, task.id)
                if settlement.paid_microcredits:
                    paid = (
                        f"{settlement.paid_microcredits / 1e6:.6f} credits paid to {len(settlement.payments)} devices"
                    )
                    await tasks.add_events(tx, Event(task.id, now, "round.settled", paid, round_.number))
        return moved

    async def _sweep(self, task: Task, round_: Round, everybody: list[Participation]) -> None:
        """Forgets the updates and letters of a round that is over."""
        async with self.database.writing() as tx:
            digests = {p.digest for p in everybody if p.digest}
            digests |= set(await models.take_letters(tx, task.id, round_.number - 1))
            unused = digests - await models.digests_in_use(tx, digests) if digests else set()
        for digest in unused:
            await self.blobs.delete(digest)


def pays_clusters(spec: TaskSpecification) -> bool:
    """Whether devices are paid their share of what their cluster is worth."""
    return spec.topology == "clusters" and spec.incentive in ("payoff", "stackelberg")


def ties_of(everybody: list[Participation]) -> dict[str, list[str]]:
    """The heads each member worked for in a round: its own, and one that was lost before."""
    ties: dict[str, list[str]] = {}
    for p in everybody:
        item = pb.WorkItem.FromString(p.work)
        for peer in item.peers:
            member, head = (p.device_id, peer.device_id) if peer.role == "head" else (peer.device_id, p.device_id)
            if head not in ties.setdefault(member, []):
                ties[member].append(head)
    return ties


def realised_payoffs(items: Mapping[str, pb.WorkItem], details: Mapping[str, Any]) -> dict[str, float]:
    """ψ of everybody who delivered under one plan, in the clusters of those who did. [SCFL] eq (18)."""
    stakes, alone = clusters.Stakes(**details["stakes"]), details["alone"]
    heads = heads_of(items)
    together: dict[str, dict[str, float]] = {}
    for device, item in items.items():
        together.setdefault(heads.get(device, device), {})[device] = item.self_weight
    payoffs: dict[str, float] = {}
    for head, qualities in together.items():
        payoffs |= clusters.divide(qualities, alone, head, stakes)
    return payoffs


def work_of(p: Participation, owed: int) -> pricing.Work:
    """What pricing is told; in clusters a budget counts only from a device that was offered a price for it."""
    item = pb.WorkItem.FromString(p.work)
    sold = item.topology != "clusters" or item.price_microcredits > 0
    return pricing.Work(
        device_id=p.device_id,
        owner_id=p.owner_id,
        outcome=p.state,
        budget=p.budget if sold else 0.0,
        quality=p.weight,
        owed_microcredits=owed,
        privacy=[pricing.PrivacyCharge(**charge) for charge in p.privacy] if p.state == "delivered" else [],  # type: ignore[arg-type]
    )

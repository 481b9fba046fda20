"""Clusters: members hand their update to a head, which combines them by quality and hands in one sum.

[SCFL] Social-Aware Clustered Federated Learning, §IV-V. The planner forms the clusters and says who noises how much.
Here a member's work counts when its head has delivered with its letter in the sum; a member that has handed in its
report is "delivered" in the books, but is worth nothing until then. A head that declines, is revoked, falls silent or
has not delivered when most of the round's time is over is lost: the round opens again for the members it leaves behind,
planned anew among themselves, while everybody else goes on with the work it has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from coterie.records.words import Form, ParticipationState, Role
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from coterie_api.words.v1 import words_pb2 as words
from services.aggregation.domain.plausibility import is_zero
from services.aggregation.domain.records import Delivery, Participation
from services.aggregation.domain.rounds import OUT, witness_pairs
from services.aggregation.errors import BadUpdate, RoundOver
from services.aggregation.ways import way
from services.aggregation.ways.base import Roster, Tie, Update, Way

HOPEFUL = (ParticipationState.ASSIGNED, ParticipationState.DELIVERED)
"""States of members whose work may come to count."""


@way(
    "clusters",
    privacy=("trust", "uniform", "none"),
    incentive=("payoff", "none"),
    preset="clusters",
    why={"trust": "it is trust in a head", "payoff": "it divides a cluster's value"},
)
class Clusters(Way):
    """Sums of heads, updates of devices alone, reports of members."""

    patience = 0.8
    given_up = "its cluster waited in vain"

    # --- opening a round ---------------------------------------------------------------------------------------------

    def planned_again(self, roster: Roster, chosen: Sequence[str], left: Collection[str]) -> list[str]:
        """Members of lost heads, or all whose work does not count yet.

        A member whose head delivered without it gets another chance, one whose update was rejected does not.
        """
        if left:
            return [device for device in chosen if device in left]
        done = {d for d in chosen if roster.states.get(d) in (ParticipationState.DROPPED, ParticipationState.REJECTED)}
        done |= {
            d
            for d in roster.states
            if self.state_of(roster, d) in (ParticipationState.DELIVERED, ParticipationState.REJECTED)
        }
        return [device for device in chosen if device in roster.states and device not in done]

    def starts_anew(self, state: ParticipationState | None) -> bool:
        """Those planned for start anew even if they reported to a head."""
        return True

    def ties(self, seat: topology.Seat, seats: Mapping[str, topology.Seat]) -> list[Tie]:
        if seat.role == words.ROLE_MEMBER:
            return [Tie(seat.head_device_id, Role.HEAD, 0.0, trusted=True)]
        return [
            Tie(other.device_id, Role.MEMBER, other.weight, trusted=other.noise_multiplier == 0.0)
            for other in seats.values()
            if other.head_device_id == seat.device_id and other.device_id != seat.device_id
        ]

    def heaviest(self, plan: topology.Plan, samples: Mapping[str, int]) -> float:
        """Clusters may merge when a head is lost in the middle of a round, so all of them together are allowed for."""
        together = any(seat.role == words.ROLE_HEAD for seat in plan.seats)
        return max(super().heaviest(plan, samples), sum(seat.weight for seat in plan.seats) if together else 0.0)

    # --- deliveries --------------------------------------------------------------------------------------------------

    def check_delivery(self, roster: Roster, delivery: Delivery) -> None:
        """A member reports, everybody else hands in tensors, of no more quality than the plan gives it."""
        is_member = delivery.device_id in roster.via
        if is_member != (delivery.form is Form.REPORT):
            wanted = "a report, its update goes to its head" if is_member else "a sum or a mean"
            refusal = RoundOver if roster.attempt > 1 else BadUpdate  # it may have been right before
            raise refusal(f"the plan wants {wanted} from {delivery.device_id}, not a {delivery.form}")
        item = roster.items[delivery.device_id]
        most = item.self_weight + (sum(peer.weight for peer in item.peers) if delivery.form is Form.SUM else 0.0)
        if not is_member and delivery.weight > most * (1 + 1e-9):
            raise BadUpdate(f"weight {delivery.weight} is above the {most} the plan gives the device and its members")

    def letter_first(self, roster: Roster, delivery: Delivery) -> str:
        """A report counts once the letter to the present head is here.

        So one that was under way when the round was planned anew does not count for a letter never sent.
        """
        is_waited_for = roster.states[delivery.device_id] is ParticipationState.ASSIGNED
        return roster.via.get(delivery.device_id, "") if is_waited_for else ""

    def inspect(self, update: Update) -> dict[str, float]:
        """Refuses free rides: heads look at their members' updates, this is what the platform sees of the others'."""
        if update.is_copy:
            raise BadUpdate("the update is a copy of another device's; train on your own data")
        if is_zero(update.read, update.layout.header_bytes, update.delivery.size_bytes):
            raise BadUpdate("the update is zero everywhere; train before you deliver")
        return {}

    # --- the open round ----------------------------------------------------------------------------------------------

    def via(self, items: Mapping[str, pb.WorkItem]) -> dict[str, str]:
        """The head of every member, by what each was told."""
        return {
            device: peer.device_id
            for device, item in items.items()
            if item.role == words.ROLE_MEMBER
            for peer in item.peers
            if peer.role == words.ROLE_HEAD
        }

    def visible(self, roster: Roster) -> list[str]:
        """Sums of heads, and updates of those alone."""
        return [device for device in super().visible(roster) if device not in roster.via]

    def state_of(self, roster: Roster, device_id: str) -> ParticipationState:
        """A member whose head is under way is "assigned" whatever it has reported.

        One whose head delivered without it is "dropped" or "rejected", one whose head delivers no more "orphaned".
        """
        state, head = roster.states[device_id], roster.via.get(device_id, "")
        if not head or state not in HOPEFUL:
            return state
        if roster.states.get(head) is ParticipationState.ASSIGNED:
            return ParticipationState.ASSIGNED
        if roster.states.get(head) is not ParticipationState.DELIVERED:
            return ParticipationState.ORPHANED
        outcome = roster.heard.get(device_id, (ParticipationState.DROPPED, ""))[0]
        return state if outcome is ParticipationState.DELIVERED else outcome

    def lost(self, roster: Roster, *, overdue: bool, unreachable: Collection[str]) -> dict[str, list[str]]:
        """Heads that will not deliver; one without members left is no loss."""
        orphans: dict[str, list[str]] = {}
        for member, head in sorted(roster.via.items()):
            waited_for = roster.states.get(head, ParticipationState.DROPPED)
            gone = waited_for in OUT or (waited_for is ParticipationState.ASSIGNED and (overdue or head in unreachable))
            if gone and roster.states[member] in HOPEFUL:
                orphans.setdefault(head, []).append(member)
        return orphans

    # --- closing and settling ----------------------------------------------------------------------------------------

    def verdicts(self, roster: Roster, everybody: Sequence[Participation]) -> list[Participation]:
        """Members by what became of their letters."""
        states = {p.device_id: p.state for p in everybody}
        return [_verdict(p, states, roster) for p in everybody]

    def witnesses(self, everybody: Sequence[Participation], number: int) -> list[tuple[str, str]]:
        """Each member with its heads, and with a few others of its cluster.

        Heads that were lost on the way are among them: those they left behind know them.
        """
        present = {p.device_id for p in everybody}
        clusters: dict[str, list[str]] = {}
        for member, head in _ties_told(everybody):
            clusters.setdefault(head, []).append(member)
        pairs = {(min(member, head), max(member, head)) for head, members in clusters.items() for member in members}
        for members in clusters.values():
            pairs |= set(witness_pairs(members, self.specification.seed, number))
        return sorted(pair for pair in pairs if present.issuperset(pair))

    def sold(self, participation: Participation) -> float:
        """A budget counts only from a device that was offered a price for it."""
        return participation.budget if pb.WorkItem.FromString(participation.work).price_microcredits > 0 else 0.0

    def plans_paid(self, everybody: Sequence[Participation]) -> set[int]:
        if self.specification.incentive == "none":
            return set()
        return {item.plan_version for item in _delivered(everybody).values()}

    def payoffs(self, everybody: Sequence[Participation], plans: Mapping[int, topology.Plan]) -> pricing.Payoffs | None:
        """The clusters as they came about: those who delivered under one plan and head."""
        if self.specification.incentive == "none":
            return None
        items = _delivered(everybody)
        together: dict[tuple[int, str], pricing.Cluster] = {}
        alone = {(version, seat.device_id): seat.alone for version, plan in plans.items() for seat in plan.seats}
        for device, item in items.items():
            version, head = item.plan_version, self.via({device: item}).get(device, device)
            made = pricing.Cluster(head_device_id=head, stakes=plans[version].stakes)
            together.setdefault((version, head), made).members.add(
                device_id=device, quality=item.self_weight, alone=alone[version, device]
            )
        return pricing.Payoffs(
            clusters=together.values(),
            credits_per_point=float(self.prices.get("credits_per_point", 0.0)),
            pot_microcredits=self.own_pot,
        )

    @property
    def prices(self) -> dict[str, Any]:
        """What the task tells pricing."""
        return dict(self.specification.parameters.get("pricing", {}))

    @property
    def own_pot(self) -> int:
        """Pot that payoffs share, micro-credits; 0 = the one pricing quoted for the round."""
        return 0


def _verdict(p: Participation, states: Mapping[str, ParticipationState], roster: Roster) -> Participation:
    head = roster.via.get(p.device_id, "")
    if not head or p.state not in HOPEFUL:
        return p
    if states.get(head) is not ParticipationState.DELIVERED:
        return replace(p, state=ParticipationState.ORPHANED, note=f"its head {head} delivered nothing")
    outcome, note = roster.heard.get(p.device_id, (ParticipationState.DROPPED, "its head went on without it"))
    if outcome is ParticipationState.DELIVERED:
        return replace(p, state=outcome, form=p.form or Form.REPORT)
    return replace(p, state=outcome, note=f"by its head: {note or outcome}"[:500])


def _ties_told(everybody: Sequence[Participation]) -> list[tuple[str, str]]:
    """Each member with every head it worked for: its own, and one that was lost before and still names it."""
    ties: dict[tuple[str, str], None] = {}
    for p in everybody:
        for peer in pb.WorkItem.FromString(p.work).peers:
            ties[(p.device_id, peer.device_id) if peer.role == words.ROLE_HEAD else (peer.device_id, p.device_id)] = (
                None
            )
    return list(ties)


def _delivered(everybody: Sequence[Participation]) -> dict[str, pb.WorkItem]:
    """What everybody was told who delivered."""
    return {p.device_id: pb.WorkItem.FromString(p.work) for p in everybody if p.state is ParticipationState.DELIVERED}

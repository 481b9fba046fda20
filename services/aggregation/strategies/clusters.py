"""Clusters: members hand their update to a head, which combines them by quality and hands in one sum.

[SCFL] Social-Aware Clustered Federated Learning, §IV-V. The planner forms the clusters and says who noises how much.
Here a member's work counts when its head has delivered with its letter in the sum; a member that has handed in its
report is "delivered" in the books, but is worth nothing until then. A head that declines, is revoked, falls silent or
has not delivered when most of the round's time is over is lost: the round opens again for the members it leaves behind,
planned anew among themselves, while everybody else goes on with the work it has.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from coterie.records.enums import Form, ParticipationState, Role
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.plausibility import noised_norm
from services.aggregation.domain.records import Delivery, Participation
from services.aggregation.domain.rounds import OUT, witness_pairs
from services.aggregation.domain.rules.choice import choose
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.domain.trust_noise import TrustNoise
from services.aggregation.errors import BadTask, BadUpdate
from services.aggregation.strategies import strategy
from services.aggregation.strategies.base import Strategy
from services.aggregation.strategies.roster import Roster, Tie, Update

CLERKS, THRESHOLD, LEAST = 4, 2, 3
"""Clerks of a cluster that is a secure sum, how many open it together, and the fewest devices it has."""
HOPEFUL = (ParticipationState.ASSIGNED, ParticipationState.DELIVERED)
"""States of members whose work may come to count."""


@strategy(
    "clusters",
    privacy=("trust", "uniform", "none"),
    incentive=("payoff", "none"),
    preset="clusters",
    why={"trust": "it is trust in a head", "payoff": "it divides a cluster's value"},
)
class Clusters(Strategy):
    """Sums of heads, updates of devices alone, reports of members."""

    judges = True
    patience = 0.8
    in_step = "in clusters a head combines its members' updates of the same round"
    given_up = "its cluster waited in vain"

    sums_apart = True

    def __init__(self, specification: TaskSpecification) -> None:
        super().__init__(specification)
        self.learns_quality = specification.parameters.get("topology", {}).get("quality") == "fitted"

    def check_sums(self, rules: SumRules) -> None:
        if (rules.clerks, rules.threshold) != (CLERKS, THRESHOLD) or rules.cohort_devices:
            raise BadTask(
                "sums.mode secure: each cluster is a sum of its own, with up to 4 of its members as clerks, "
                "any 2 of whom could open it; leave clerks, threshold and cohort_devices out"
            )
        choice = choose(self.specification.rule, self.specification.parameters_json)
        if not choice.is_mean:
            raise BadTask(f"rule {choice.name}: secure sums of clusters are added up; leave the rule out")

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
        if self.sum_rules.secure:
            return []
        if seat.role == words.ROLE_MEMBER:
            return [Tie(seat.head_device_id, Role.HEAD, 0.0, trusted=True)]
        return [
            Tie(other.device_id, Role.MEMBER, other.weight, trusted=other.noise_multiplier == 0.0)
            for other in seats.values()
            if other.head_device_id == seat.device_id and other.device_id != seat.device_id
        ]

    def heaviest(self, plan: topology.Plan, counted: Mapping[str, float]) -> float:
        """Clusters may merge when a head is lost in the middle of a round, so all of them together are allowed for."""
        together = any(seat.role == words.ROLE_HEAD for seat in plan.seats)
        return max(super().heaviest(plan, counted), sum(seat.weight for seat in plan.seats) if together else 0.0)

    # --- secure sums -------------------------------------------------------------------------------------------------

    def prepared(self, plan: topology.Plan) -> topology.Plan:
        """Where clusters are secure sums, those too small to be one are devices alone."""
        if not self.sum_rules.secure:
            return plan
        sizes = Counter(seat.head_device_id for seat in plan.seats if seat.head_device_id)
        changed = topology.Plan()
        changed.CopyFrom(plan)
        for seat in changed.seats:
            if seat.head_device_id and sizes[seat.head_device_id] < LEAST:
                self._leave_alone(seat)
        return changed

    def _leave_alone(self, seat: topology.Seat) -> None:
        seat.role, seat.head_device_id, seat.group = words.ROLE_SOLO, "", -1
        if self.specification.privacy == "trust":
            seat.noise_multiplier = self.trust_noise.most
            seat.weight = seat.weight_alone or seat.weight

    @property
    def trust_noise(self) -> TrustNoise:
        """The terms of noise, where it goes by trust."""
        return TrustNoise.of(self.specification.parameters)

    def sums_of(self, plan: topology.Plan, devices: Collection[str], number: int) -> dict[int, list[str]]:
        """Every cluster is a sum; they are numbered from 1, since 0 is the sum of those alone."""
        clusters: dict[str, list[str]] = {}
        for seat in plan.seats:
            if seat.head_device_id and seat.device_id in devices:
                clusters.setdefault(seat.head_device_id, []).append(seat.device_id)
        return dict(enumerate((clusters[head] for head in sorted(clusters)), 1))

    def committee(self, participants: int) -> SumRules:
        return replace(self.sum_rules, clerks=min(CLERKS, max(participants, LEAST)))

    def sum_noise(self, plan: topology.Plan) -> float:
        """By privacy "uniform" the task's; by trust it follows from trust in the clerks, see `noise_by_trust`."""
        return 0.0 if self.specification.privacy == "trust" else super().sum_noise(plan)

    def noise_by_trust(self, planned: float, least_trust: float) -> float:
        """What the member that trusts the clerks least needs."""
        return planned if self.specification.privacy != "trust" else self.trust_noise.multiplier(least_trust)

    def masked_weight(self, roster: Roster, device_id: str, *, noised: bool) -> float:
        """Its planned quality."""
        return roster.items[device_id].self_weight

    def heaviest_masked(self, plan: topology.Plan, counted: Mapping[str, float], *, noised: bool) -> float:
        return max([1.0, *(seat.weight for seat in plan.seats)])

    def alone_instead(self, roster: Roster, devices: Collection[str], attempt: int) -> dict[str, pb.WorkItem]:
        """Each by itself with the noise of one alone; without noise nothing, so that no failed sum buys raw updates."""
        if self.specification.privacy == "none":
            return {}
        items = {}
        for device in devices:
            items[device] = pb.WorkItem()
            items[device].CopyFrom(roster.items[device])
            items[device].role, items[device].attempt = words.ROLE_SOLO, attempt
            if self.specification.privacy == "trust":
                items[device].noise_multiplier = self.trust_noise.most
                items[device].self_weight = items[device].weight_alone or items[device].self_weight
        return items

    # --- deliveries --------------------------------------------------------------------------------------------------

    def check_delivery(self, roster: Roster, delivery: Delivery) -> None:
        """A member reports, everybody else hands in tensors, of no more quality than the plan gives it."""
        is_member = delivery.device_id in roster.via
        if is_member != (delivery.form is Form.REPORT):
            wanted = "a report, its update goes to its head" if is_member else "a sum or a mean"
            raise self.misfit(roster, f"the plan wants {wanted} from {delivery.device_id}, not a {delivery.form}")
        claimed = _claimed(delivery)
        if claimed and delivery.form is not Form.SUM:
            raise BadUpdate(
                f"members that delivered ({', '.join(claimed)[:200]}) are in a sum, not in a {delivery.form}"
            )
        strangers = sorted(set(claimed) - {peer.device_id for peer in roster.items[delivery.device_id].peers})
        if strangers:
            raise self.misfit(
                roster, f"{', '.join(strangers)[:200]} are no members of {delivery.device_id} in this round"
            )
        # A head left alone may claim its quality: what counts of it is what it is worth alone, see `weigh`.
        most = max(self.weigh(roster, delivery), roster.items[delivery.device_id].self_weight)
        if not is_member and delivery.weight > most * (1 + 1e-9):
            raise self.misfit(
                roster, f"weight {delivery.weight} is above the {most} that the plan gives those who are in it"
            )
        if delivery.form is Form.SUM and not claimed and self._heads(roster.items[delivery.device_id]):
            raise self.misfit(
                roster, "a sum of one hides nobody; hand in a mean, with the largest noise and the weight of one alone"
            )

    def weigh(self, roster: Roster, delivery: Delivery) -> float:
        """The planned quality of those in the delivery: a head's own and that of members it says delivered."""
        item = roster.items[delivery.device_id]
        if delivery.form is Form.SUM:
            claimed = set(_claimed(delivery))
            return math.fsum([item.self_weight, *(peer.weight for peer in item.peers if peer.device_id in claimed)])
        return (item.weight_alone or item.self_weight) if self._heads(item) else item.self_weight

    def _heads(self, item: pb.WorkItem) -> bool:
        """Whether it is the work of a head that noises nothing because its members hide it."""
        return bool(item.role == words.ROLE_HEAD) and self.specification.privacy == "trust"

    def letters_first(self, roster: Roster, delivery: Delivery) -> tuple[str, Collection[str]]:
        """A report counts once the letter to the present head is here, a head's sum once all letters in it are.

        So a report that was under way when the round was planned anew does not count for a letter never sent, and no
        head can speak for members that sent it nothing.
        """
        device = delivery.device_id
        if roster.states[device] is not ParticipationState.ASSIGNED:
            return "", ()
        return (roster.via[device], [device]) if device in roster.via else (device, _claimed(delivery))

    def largest_norm(self, update: Update) -> float:
        """A head's sum is bounded by those in it: the qualities of the head and its members times the bound of each.

        A member that noises at all may add as much as the task's largest noise, which is what its head checks.
        """
        if not self.clips:
            return math.inf
        item, claimed = update.item, set(_claimed(update.delivery))
        own = self._noise(item.noise_multiplier, alone=item.role == words.ROLE_HEAD and not claimed)
        parts = [(item.self_weight, own)]
        parts += [
            (peer.weight, self._noise(update.roster.items[peer.device_id].noise_multiplier))
            for peer in item.peers
            if peer.device_id in claimed
        ]
        bounds = [(weight, noised_norm(self.clip_norm, noise, update.elements)) for weight, noise in parts]
        together = math.fsum(weight for weight, _ in bounds)
        return math.fsum(weight * bound for weight, bound in bounds) / together if together > 0.0 else bounds[0][1]

    def _noise(self, planned: float, *, alone: bool = False) -> float:
        """The largest noise multiplier that a device may use for whom the plan has this one."""
        if self.specification.privacy != "trust" or not (planned > 0.0 or alone):
            return planned
        return max(planned, self.trust_noise.most)

    @property
    def earns(self) -> bool:
        """Members are judged by their heads for free rides, so the others are too, paid or not."""
        return True

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

        Heads that were lost on the way are among them: those they left behind know them. In secure sums nobody heads
        anybody, and everybody is a witness as in a star.
        """
        if self.sum_rules.secure:
            return super().witnesses(everybody, number)
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
        seats = {(version, seat.device_id): seat for version, plan in plans.items() for seat in plan.seats}
        alone = {place: seat.alone for place, seat in seats.items()}
        for device, item in items.items():
            version, head = item.plan_version, self.via({device: item}).get(device, device)
            if self.sum_rules.secure and item.role != words.ROLE_SOLO:
                head = seats[version, device].head_device_id
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


def _claimed(delivery: Delivery) -> list[str]:
    """Members that a head says it has in its sum."""
    return sorted(
        str(told["device_id"]) for told in delivery.members if told["outcome"] is ParticipationState.DELIVERED
    )


def _verdict(p: Participation, states: Mapping[str, ParticipationState], roster: Roster) -> Participation:
    head = roster.via.get(p.device_id, "")
    if not head or p.state not in HOPEFUL:
        return p
    if states.get(head) is not ParticipationState.DELIVERED:
        return replace(p, state=ParticipationState.ORPHANED, note=f"its head {head} delivered nothing")
    outcome, note = roster.heard.get(p.device_id, (ParticipationState.DROPPED, "its head went on without it"))
    if outcome is ParticipationState.DELIVERED:
        return replace(p, state=outcome, form=p.form or Form.REPORT)
    # Of one whose report never came a head may say so; against one whose report is here its word stands alone.
    judge = head if p.state is ParticipationState.DELIVERED else ""
    return replace(p, state=outcome, note=f"by its head: {note or outcome}"[:500], judged_by=judge)


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

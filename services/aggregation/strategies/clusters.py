"""Clusters: members send their update to a head, which combines them by quality and delivers one sum.

[SCFL] Social-Aware Clustered Federated Learning, §IV-V. The planner forms the clusters and assigns the noise. A
member's work counts when its head has delivered a sum with its letter; a member that has delivered its report is stored
as "delivered" but counts for nothing until then. A head is lost when it declines, is revoked, is unreachable or has not
delivered when most of the round's time is over. The round then reopens for the members of the lost head, replanned
among themselves, while all other devices continue their work.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

from coterie.parameters.topology import ClusterParameters
from coterie.records.enums import Form, ParticipationState, Role
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.plausibility import noised_norm
from services.aggregation.domain.records import Delivery, Participation
from services.aggregation.domain.rounds import OUT
from services.aggregation.domain.rules.choice import choose
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadTask, BadUpdate
from services.aggregation.strategies.base import Strategy
from services.aggregation.strategies.cluster_settlement import ClusterSettlement
from services.aggregation.strategies.cluster_sums import (
    CLERKS,
    THRESHOLD,
    ClusterSecureSums,
    dissolve_small_clusters,
)
from services.aggregation.strategies.cluster_terms import (
    HOPEFUL,
    ClusterTerms,
    claimed_members,
    effective_state,
    heads_of,
)
from services.aggregation.strategies.parts.combination import Combination
from services.aggregation.strategies.parts.delivery import DeliveryPolicy
from services.aggregation.strategies.parts.progress import RoundProgress
from services.aggregation.strategies.parts.round_plan import RoundPlan
from services.aggregation.strategies.parts.task_check import TaskCheck
from services.aggregation.strategies.roster import Peer, Roster, Update


class ClusterTaskCheck(TaskCheck):
    """Secure sums need a mean and the committee that the strategy chooses."""

    lockstep_reason = "in clusters a head combines its members' updates of the same round"

    def require_secure_sums(self, rules: SumRules) -> None:
        if (rules.clerks, rules.threshold) != (CLERKS, THRESHOLD) or rules.cohort_devices:
            raise BadTask(
                "sums.mode secure: each cluster is a separate sum, with up to 4 of its members as clerks, any 2 of "
                "whom can open it; leave clerks, threshold and cohort_devices out"
            )
        choice = choose(self.specification.rule, self.specification.parameters_json)
        if not choice.is_mean:
            raise BadTask(f"rule {choice.name}: secure sums of clusters are added up; leave the rule out")


class ClusterRoundPlan(RoundPlan):
    """Letters between members and heads; members of lost heads are replanned."""

    terms: ClusterTerms

    @property
    def fits_quality(self) -> bool:
        return ClusterParameters.of(self.specification.parameters).quality == "fitted"

    def adapt(self, plan: topology.Plan) -> topology.Plan:
        return dissolve_small_clusters(plan, self.terms) if self.terms.sum_rules.secure else plan

    def replanned_devices(self, roster: Roster, chosen: Sequence[str], orphans: Collection[str]) -> list[str]:
        """Members of lost heads, or else all devices whose work does not count yet.

        A member whose head delivered without it gets another chance, one whose update was rejected does not.
        """
        if orphans:
            return [device for device in chosen if device in orphans]
        done = {d for d in chosen if roster.states.get(d) in (ParticipationState.DROPPED, ParticipationState.REJECTED)}
        done |= {
            d
            for d in roster.states
            if effective_state(roster, d) in (ParticipationState.DELIVERED, ParticipationState.REJECTED)
        }
        return [device for device in chosen if device in roster.states and device not in done]

    def is_reassigned(self, state: ParticipationState | None) -> bool:
        """True, even for devices that reported to a head."""
        return True

    def peers(self, assignment: topology.Assignment, assignments: Mapping[str, topology.Assignment]) -> list[Peer]:
        if self.terms.sum_rules.secure:
            return []
        if assignment.role == words.ROLE_MEMBER:
            return [Peer(assignment.head_device_id, Role.HEAD, 0.0, trusted=True)]
        return [
            Peer(other.device_id, Role.MEMBER, other.weight, trusted=other.noise_multiplier == 0.0)
            for other in assignments.values()
            if other.head_device_id == assignment.device_id and other.device_id != assignment.device_id
        ]

    def largest_weight(self, plan: topology.Plan, counted: Mapping[str, float]) -> float:
        """Leaves room for the sum of all clusters, which may merge when a head is lost during the round."""
        has_heads = any(assignment.role == words.ROLE_HEAD for assignment in plan.assignments)
        total = sum(assignment.weight for assignment in plan.assignments) if has_heads else 0.0
        return max(super().largest_weight(plan, counted), total)


class ClusterProgress(RoundProgress):
    """Heads are the relays of their members."""

    relay_timeout_share = 0.8
    lost_relay_note = "its cluster waited for it in vain"

    def relays(self, items: Mapping[str, pb.WorkItem]) -> dict[str, str]:
        return heads_of(items)

    def visible_devices(self, roster: Roster) -> list[str]:
        """Heads with their sums, and devices alone."""
        return [device for device in super().visible_devices(roster) if device not in roster.relayed_by]

    def effective_state(self, roster: Roster, device_id: str) -> ParticipationState:
        return effective_state(roster, device_id)

    def lost_relays(self, roster: Roster, *, overdue: bool, unreachable: Collection[str]) -> dict[str, list[str]]:
        """Heads that will not deliver; a head without remaining members does not count."""
        orphans: dict[str, list[str]] = {}
        for member, head in sorted(roster.relayed_by.items()):
            state = roster.states.get(head, ParticipationState.DROPPED)
            is_lost = state in OUT or (state is ParticipationState.ASSIGNED and (overdue or head in unreachable))
            if is_lost and roster.states[member] in HOPEFUL:
                orphans.setdefault(head, []).append(member)
        return orphans


class ClusterDelivery(DeliveryPolicy):
    """Sums of heads, updates of devices alone, reports of members."""

    terms: ClusterTerms

    def require_valid(self, roster: Roster, delivery: Delivery) -> None:
        """A member reports; a head or a device alone delivers tensors, with at most its planned quality."""
        is_member, item = delivery.device_id in roster.relayed_by, roster.items[delivery.device_id]
        if is_member != (delivery.form is Form.REPORT):
            wanted = "a report, its update goes to its head" if is_member else "a sum or a mean"
            raise self.plan_mismatch(
                roster, f"the plan wants {wanted} from {delivery.device_id}, not a {delivery.form}"
            )
        claimed = claimed_members(delivery)
        if claimed and delivery.form is not Form.SUM:
            raise BadUpdate(
                f"members that delivered ({', '.join(claimed)[:200]}) are in a sum, not in a {delivery.form}"
            )
        strangers = sorted(set(claimed) - {peer.device_id for peer in item.peers})
        if strangers:
            raise self.plan_mismatch(
                roster, f"{', '.join(strangers)[:200]} are not members of {delivery.device_id} in this round"
            )
        # A head left alone may claim its quality; `weight` counts what it is worth alone.
        most = max(self.weight(roster, delivery), item.self_weight)
        if not is_member and delivery.weight > most * (1 + 1e-9):
            raise self.plan_mismatch(
                roster, f"weight {delivery.weight} is above the {most} that the plan gives to the devices in it"
            )
        if delivery.form is Form.SUM and not claimed and self._is_raw_head(item):
            raise self.plan_mismatch(
                roster,
                "a sum of one device hides nothing; deliver a mean, with the largest noise and the weight of a device "
                "alone",
            )

    def weight(self, roster: Roster, delivery: Delivery) -> float:
        """The planned quality of the devices in the delivery: a head's and that of the members it claims."""
        item = roster.items[delivery.device_id]
        if delivery.form is Form.SUM:
            claimed = set(claimed_members(delivery))
            return math.fsum([item.self_weight, *(peer.weight for peer in item.peers if peer.device_id in claimed)])
        return (item.solo_weight or item.self_weight) if self._is_raw_head(item) else item.self_weight

    def _is_raw_head(self, item: pb.WorkItem) -> bool:
        """Whether a head adds no noise because its members' updates hide its own."""
        return bool(item.role == words.ROLE_HEAD) and self.terms.trusts

    def required_letters(self, roster: Roster, delivery: Delivery) -> tuple[str, Collection[str]]:
        """A report needs the member's letter to its present head, a head's sum the letters of all members in it.

        So a report sent before the round was replanned does not stand for a letter that was never sent, and a head
        cannot claim members that sent it nothing.
        """
        device = delivery.device_id
        if roster.states[device] is not ParticipationState.ASSIGNED:
            return "", ()
        if device in roster.relayed_by:
            return roster.relayed_by[device], [device]
        return device, claimed_members(delivery)

    def norm_limit(self, update: Update) -> float:
        """The mean of the limits of the devices in a head's sum, weighted by their qualities.

        A member that adds noise may add up to the task's largest noise, which its head checks.
        """
        if not self.terms.clips:
            return math.inf
        item, claimed = update.item, set(claimed_members(update.delivery))
        own_noise = self._largest_noise(item.noise_multiplier, alone=item.role == words.ROLE_HEAD and not claimed)
        parts = [(item.self_weight, own_noise)]
        parts += [
            (peer.weight, self._largest_noise(update.roster.items[peer.device_id].noise_multiplier))
            for peer in item.peers
            if peer.device_id in claimed
        ]
        limits = [(weight, noised_norm(self.terms.clip_norm, noise, update.elements)) for weight, noise in parts]
        total = math.fsum(weight for weight, _ in limits)
        return math.fsum(weight * limit for weight, limit in limits) / total if total > 0.0 else limits[0][1]

    def _largest_noise(self, planned: float, *, alone: bool = False) -> float:
        """The largest noise multiplier that a device with this planned one may use."""
        if not self.terms.trusts or not (planned > 0.0 or alone):
            return planned
        return max(planned, self.terms.trust_noise.most)


class ClusterCombination(Combination):
    """Members end as their heads report."""

    def outcomes(self, roster: Roster, participations: Sequence[Participation]) -> list[Participation]:
        states = {p.device_id: p.state for p in participations}
        return [_outcome(p, states, roster) for p in participations]


class Clusters(Strategy):
    """Sums of heads, updates of devices alone, reports of members."""

    topology = "clusters"
    privacies: ClassVar[tuple[str, ...]] = ("trust", "uniform", "none")
    incentives: ClassVar[tuple[str, ...]] = ("payoff", "none")
    preset = "clusters"
    reasons = MappingProxyType({"trust": "it is trust in a head", "payoff": "it divides a cluster's value"})

    terms_class = ClusterTerms
    task_check_class = ClusterTaskCheck
    round_plan_class = ClusterRoundPlan
    progress_class = ClusterProgress
    delivery_class = ClusterDelivery
    combination_class = ClusterCombination
    settlement_class = ClusterSettlement
    secure_sums_class = ClusterSecureSums


def _outcome(p: Participation, states: Mapping[str, ParticipationState], roster: Roster) -> Participation:
    head = roster.relayed_by.get(p.device_id, "")
    if not head or p.state not in HOPEFUL:
        return p
    if states.get(head) is not ParticipationState.DELIVERED:
        return replace(p, state=ParticipationState.ORPHANED, note=f"its head {head} delivered nothing")
    outcome, note = roster.reports.get(p.device_id, (ParticipationState.DROPPED, "its head went on without it"))
    if outcome is ParticipationState.DELIVERED:
        return replace(p, state=outcome, form=p.form or Form.REPORT)
    # A head's word suffices against a member without a report; against one with a report it is disputable.
    judge = head if p.state is ParticipationState.DELIVERED else ""
    return replace(p, state=outcome, note=f"by its head: {note or outcome}"[:500], judged_by=judge)

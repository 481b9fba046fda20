"""Clusters: conduct that members and heads witness, and payoffs by cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coterie.parameters.pricing import PayoffParameters
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.records import Participation
from services.aggregation.domain.rounds import witness_pairs
from services.aggregation.strategies.cluster_terms import delivered_items, heads_of
from services.aggregation.strategies.parts.settlement import Settlement


class ClusterSettlement(Settlement):
    """Payoffs of clusters."""

    has_disputes = True

    def witnesses(self, participations: Sequence[Participation], number: int) -> list[tuple[str, str]]:
        """Each member with its heads, and with a few other members of its cluster.

        Heads that were lost during the round are included: the members they left behind know them. Secure sums have
        no heads, so all devices are witnesses as in a star.
        """
        if self.terms.sum_rules.secure:
            return super().witnesses(participations, number)
        present = {p.device_id for p in participations}
        clusters: dict[str, list[str]] = {}
        for member, head in _members_with_heads(participations):
            clusters.setdefault(head, []).append(member)
        pairs = {(min(member, head), max(member, head)) for head, members in clusters.items() for member in members}
        for members in clusters.values():
            pairs |= set(witness_pairs(members, self.specification.seed, number))
        return sorted(pair for pair in pairs if present.issuperset(pair))

    def paid_budget(self, participation: Participation) -> float:
        """A budget counts only from a device that was offered a price for it."""
        return participation.budget if pb.WorkItem.FromString(participation.work).price_microcredits > 0 else 0.0

    def required_plans(self, participations: Sequence[Participation]) -> set[int]:
        if self.specification.incentive == "none":
            return set()
        return {item.plan_version for item in delivered_items(participations).values()}

    def payoffs(
        self, participations: Sequence[Participation], plans: Mapping[int, topology.Plan]
    ) -> pricing.Payoffs | None:
        """The clusters of the devices that delivered under one plan and head."""
        if self.specification.incentive == "none":
            return None
        items = delivered_items(participations)
        clusters: dict[tuple[int, str], pricing.Cluster] = {}
        assignments = {
            (version, assignment.device_id): assignment
            for version, plan in plans.items()
            for assignment in plan.assignments
        }
        for device, item in items.items():
            version, head = item.plan_version, heads_of({device: item}).get(device, device)
            if self.terms.sum_rules.secure and item.role != words.ROLE_SOLO:
                head = assignments[version, device].head_device_id
            empty = pricing.Cluster(head_device_id=head, game_parameters=plans[version].game_parameters)
            clusters.setdefault((version, head), empty).members.add(
                device_id=device, quality=item.self_weight, solo_payoff=assignments[version, device].solo_payoff
            )
        return pricing.Payoffs(
            clusters=clusters.values(),
            credits_per_point=self.prices.credits_per_point,
            pot_microcredits=self.pot_microcredits,
        )

    @property
    def prices(self) -> PayoffParameters:
        """The task's parameters of pricing."""
        return PayoffParameters.of(self.specification.parameters)

    @property
    def pot_microcredits(self) -> int:
        """The pot that payoffs share; 0 = the pot that pricing quoted for the round."""
        return 0


def _members_with_heads(participations: Sequence[Participation]) -> list[tuple[str, str]]:
    """Each member with its head, and with each lost head that still names it."""
    pairs: dict[tuple[str, str], None] = {}
    for p in participations:
        for peer in pb.WorkItem.FromString(p.work).peers:
            is_head = peer.role == words.ROLE_HEAD
            pairs[(p.device_id, peer.device_id) if is_head else (peer.device_id, p.device_id)] = None
    return list(pairs)

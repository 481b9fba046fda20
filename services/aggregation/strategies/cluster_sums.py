"""Clusters as secure sums: each cluster is one sum, opened by a committee of its members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.strategies.cluster_terms import ClusterTerms
from services.aggregation.strategies.parts.secure_sums import SecureSumPolicy
from services.aggregation.strategies.roster import Roster

CLERKS, THRESHOLD, LEAST = 4, 2, 3
"""Committee of a cluster's sum, members of it that open the sum together, and the fewest devices of a sum."""


class ClusterSecureSums(SecureSumPolicy):
    """One sum per cluster."""

    terms: ClusterTerms
    is_per_cluster = True

    def group_devices(self, plan: topology.Plan, devices: Collection[str], number: int) -> dict[int, list[str]]:
        """Sums are numbered from 1, since 0 is the sum of the devices outside of clusters."""
        clusters: dict[str, list[str]] = {}
        for assignment in plan.assignments:
            if assignment.head_device_id and assignment.device_id in devices:
                clusters.setdefault(assignment.head_device_id, []).append(assignment.device_id)
        return dict(enumerate((clusters[head] for head in sorted(clusters)), 1))

    def committee(self, participants: int) -> SumRules:
        return replace(self.terms.sum_rules, clerks=min(CLERKS, max(participants, LEAST)))

    def noise(self, plan: topology.Plan) -> float:
        """The task's noise by privacy "uniform"; by "trust" it follows from `noise_for_trust`."""
        return 0.0 if self.terms.trusts else super().noise(plan)

    def noise_for_trust(self, planned: float, least_trust: float) -> float:
        """The noise that the member with the least trust in the committee needs."""
        return self.terms.trust_noise.multiplier(least_trust) if self.terms.trusts else planned

    def weight(self, roster: Roster, device_id: str, *, noised: bool) -> float:
        """The device's planned quality."""
        return roster.items[device_id].self_weight

    def largest_weight(self, plan: topology.Plan, counted: Mapping[str, float], *, noised: bool) -> float:
        return max([1.0, *(assignment.weight for assignment in plan.assignments)])

    def fallback_work(self, roster: Roster, devices: Collection[str], attempt: int) -> dict[str, pb.WorkItem]:
        """Each device alone with its own noise; no work without noise, so that a failed sum exposes no raw update."""
        if self.specification.privacy == "none":
            return {}
        items = {}
        for device in devices:
            items[device] = pb.WorkItem()
            items[device].CopyFrom(roster.items[device])
            items[device].role, items[device].attempt = words.ROLE_SOLO, attempt
            if self.terms.trusts:
                items[device].noise_multiplier = self.terms.trust_noise.most
                items[device].self_weight = items[device].solo_weight or items[device].self_weight
        return items


def dissolve_small_clusters(plan: topology.Plan, terms: ClusterTerms) -> topology.Plan:
    """Return the plan with the devices of clusters too small for a sum on their own."""
    sizes = Counter(assignment.head_device_id for assignment in plan.assignments if assignment.head_device_id)
    changed = topology.Plan()
    changed.CopyFrom(plan)
    for assignment in changed.assignments:
        if assignment.head_device_id and sizes[assignment.head_device_id] < LEAST:
            assignment.role, assignment.head_device_id, assignment.group = words.ROLE_SOLO, "", -1
            if terms.trusts:
                assignment.noise_multiplier = terms.trust_noise.most
                assignment.weight = assignment.solo_weight or assignment.weight
    return changed

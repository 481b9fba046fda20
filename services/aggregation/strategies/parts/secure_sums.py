"""Secure-sum policy: which devices sum together, with what committee, noise and weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from coterie.secure_sums.grid import Extent
from coterie.secure_sums.terms import Terms
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.secure_terms import SumRules, draw_cohorts
from services.aggregation.domain.sum_decisions import fault_of_sum
from services.aggregation.strategies.parts.part import Part
from services.aggregation.strategies.parts.round_plan import largest_weight
from services.aggregation.strategies.roster import Roster


class SecureSumPolicy(Part):
    """Decisions about the secure sums of a round."""

    is_per_cluster: ClassVar[bool] = False
    """Whether each sum is of one cluster, and devices outside of clusters are in no sum."""

    @property
    def extra_elements(self) -> int:
        """Elements of a sum beside those of the model."""
        return int(self.terms.adaptive_clip is not None)

    @property
    def scale(self) -> int | None:
        """Fractional bits of a sum's numbers; None = as many as fit."""
        return None

    def group_devices(self, plan: topology.Plan, devices: Collection[str], number: int) -> dict[int, list[str]]:
        """The devices of each sum of a round, by the sum's number."""
        planned = [assignment.device_id for assignment in plan.assignments if assignment.device_id in devices]
        return dict(
            enumerate(draw_cohorts(planned, self.terms.sum_rules.cohort_devices, self.specification.seed, number))
        )

    def committee(self, participants: int) -> SumRules:
        """The settings of a sum of this size, with the size of its committee."""
        return self.terms.sum_rules

    def noise(self, plan: topology.Plan) -> float:
        """Noise multiplier of a sum; 0 without noise."""
        return max((assignment.noise_multiplier for assignment in plan.assignments), default=0.0)

    def terms_noise(self, noise: float, honest: int) -> float:
        """Noise multiplier in the terms of a sum that needs `noise` and has this many honest devices."""
        return noise

    def noise_for_trust(self, planned: float, least_trust: float) -> float:
        """Noise multiplier of a sum, given the least trust of a participant in the committee."""
        return planned

    def weight(self, roster: Roster, device_id: str, *, noised: bool) -> float:
        """The largest weight of a device's masked update: its counted samples, or 1 with noise."""
        return 1.0 if noised else roster.counted[device_id]

    def largest_weight(self, plan: topology.Plan, counted: Mapping[str, float], *, noised: bool) -> float:
        """The largest weight of a masked update under this plan."""
        return 1.0 if noised else largest_weight(plan, counted)

    def fallback_work(self, roster: Roster, devices: Collection[str], attempt: int) -> dict[str, pb.WorkItem]:
        """New work for the devices of a sum that failed for good; empty = none."""
        return {}

    def find_fault(self, extent: Extent, terms: Terms, budgets: Sequence[float]) -> str | None:
        """Why an opened sum of survivors with these budgets cannot come from honest devices; None if it can."""
        return fault_of_sum(extent, len(budgets), terms)

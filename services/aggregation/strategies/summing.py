"""What a strategy decides about its secure sums; unless it says otherwise, as a star does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, ClassVar

from coterie.secure_sums.grid import Extent
from coterie.secure_sums.terms import Terms
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.records import Participation
from services.aggregation.domain.secure import fault_of_sum
from services.aggregation.domain.secure_terms import SumRules, draw_cohorts
from services.aggregation.domain.tasks import TaskSpecification

if TYPE_CHECKING:
    from services.aggregation.strategies.roster import Roster


class Summing:
    """Secure sums of one strategy."""

    specification: TaskSpecification
    sums_apart: ClassVar[bool] = False
    """Whether a secure sum is of a part of the round's devices that belongs together, and others are in none."""

    def check_sums(self, rules: SumRules) -> None:
        """Raises BadTask when what the task's devices deliver cannot go into secure sums."""

    def prepared(self, plan: topology.Plan) -> topology.Plan:
        """The plan as it is carried out."""
        return plan

    def sum_noise(self, plan: topology.Plan) -> float:
        """Noise multiplier of a secure sum; 0 without noise."""
        return max((seat.noise_multiplier for seat in plan.seats), default=0.0)

    def sum_multiplier(self, noise: float, honest: int) -> float:
        """Noise multiplier of the terms of a sum that is to have this noise, with so many honest devices."""
        return noise

    def noise_by_trust(self, planned: float, least_trust: float) -> float:
        """Noise of a sum whose clerks the participant that trusts them least trusts so far; `planned` by the plan."""
        return planned

    def sums_of(self, plan: topology.Plan, devices: Collection[str], number: int) -> dict[int, list[str]]:
        """Devices of each secure sum of a round, by its number."""
        rules, planned = self.sum_rules, [seat.device_id for seat in plan.seats if seat.device_id in devices]
        return dict(enumerate(draw_cohorts(planned, rules.cohort_devices, self.specification.seed, number)))

    @property
    def sum_rules(self) -> SumRules:
        """What the task asks of its sums."""
        return SumRules.of(self.specification.parameters)

    def committee(self, participants: int) -> SumRules:
        """The same for a sum of so many: how many clerks it has."""
        return self.sum_rules

    def masked_weight(self, roster: Roster, device_id: str, *, noised: bool) -> float:
        """The most weight a device may give its masked update: its samples as far as they count, 1 with noise."""
        return 1.0 if noised else roster.counted[device_id]

    def alone_instead(self, roster: Roster, devices: Collection[str], attempt: int) -> dict[str, pb.WorkItem]:
        """What devices of a sum that failed for good do instead; nothing, but in clusters."""
        return {}

    @property
    def sum_scale(self) -> int | None:
        """Bits after the point of a sum's numbers; None = as many as fit."""
        return None

    def check_claim(self, item: pb.WorkItem, budget: float) -> None:
        """Raises BadUpdate for a claimed budget that nobody pays for."""

    def fault_of_sum(self, extent: Extent, terms: Terms, budgets: Sequence[float]) -> str | None:
        """Why an opened sum of survivors with these budgets cannot be of honest devices; None if it can."""
        return fault_of_sum(extent, len(budgets), terms)

    def findings_opened(self, everybody: Sequence[Participation], total: Callable[[], float]) -> dict[str, float]:
        """As `findings`, of secure sums; `total` is the first element of all of them together."""
        return {}

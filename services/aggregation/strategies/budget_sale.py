"""Budgets sold: devices sell zCDP budgets at the round's price and hand in noised gradient steps.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks. The price is
pricing's, the budget each device's own choice; here the claim is held against the update.
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.learning.local_steps import LocalSteps
from coterie.records.enums import ParticipationState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.domain.plausibility import stand_out
from services.aggregation.domain.records import Participation
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadTask, BadUpdate
from services.aggregation.strategies import strategy
from services.aggregation.strategies.roster import Update
from services.aggregation.strategies.sale import Sale

NORM = "update_norm"
"""Metric of a delivered update that the platform measures itself."""


@strategy("star", privacy=("priced",), incentive=("stackelberg",), preset="market")
class BudgetSale(Sale):
    """Gradients sold for a budget."""

    in_step = "a price is a round's own, and an update that counts in a later one would be paid at another price"

    def check_terms(self) -> None:
        LocalSteps.of(self.specification.training)
        told = self.specification.parameters.get("pricing")
        if isinstance(told, dict) and told.get("credits_per_point"):
            raise ValueError("credits_per_point pays clusters: choose the topology clusters, or leave it out")

    def check_sums(self, rules: SumRules) -> None:
        if not rules.unverified_claims:
            raise BadTask(
                "sums.mode secure: a masked update cannot be held against the budget it was sold for, so devices could "
                "claim more than they give; say sums.unverified_claims true to pay by their word, or leave sums out"
            )

    def check_claim(self, item: pb.WorkItem, budget: float) -> None:
        least = LocalSteps.of(self.specification.training).least_budget
        if budget < least:
            raise BadUpdate(f"a budget of {budget:g} is below the least one of {least:g}; decline the round")

    def longest(self, budget: float, samples: int, elements: int) -> float:
        return LocalSteps.of(self.specification.training).largest_change(budget, samples, elements)

    def inspect(self, update: Update) -> dict[str, float]:
        return super().inspect(update) | {NORM: update.norm}

    def suspicious(self, everybody: Sequence[Participation], elements: int) -> dict[str, str]:
        """Norms that stand out as shares of what each device's own budget and samples allow."""
        shares = {
            p.device_id: p.metrics[NORM] / self.longest(p.budget, p.samples, elements)
            for p in everybody
            if p.state is ParticipationState.DELIVERED and NORM in p.metrics
        }
        return {
            device: f"its norm is {odd.value:.3g} of what its budget allows, {odd.deviations:.1f} deviations from the "
            f"median of {odd.median:.3g}; it was averaged and paid, look at it"
            for device, odd in stand_out(shares).items()
        }

"""Budget sale: devices sell zCDP budgets at the round's price and deliver noised gradient steps.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks. Pricing sets the
price and each device chooses its budget; this module checks updates against the claimed budgets.
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.learning.local_steps import LocalSteps
from coterie.parameters.pricing import StackelbergParameters
from coterie.records.enums import ParticipationState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.domain.plausibility import stand_out
from services.aggregation.domain.records import Participation
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadTask, BadUpdate
from services.aggregation.strategies.parts.combination import Combination
from services.aggregation.strategies.roster import Update
from services.aggregation.strategies.sale import Sale, SaleDelivery, SaleTaskCheck

NORM = "update_norm"
"""Metric of a delivered update that the platform measures itself."""


class BudgetSaleTaskCheck(SaleTaskCheck):
    """Local steps must fit a budget."""

    lockstep_reason = "a price holds for one round, and an update that counts in a later one would have another price"

    def require_terms(self) -> None:
        LocalSteps.of(self.specification.training)
        if StackelbergParameters.of(self.specification.parameters).credits_per_point:
            raise ValueError("credits_per_point pays clusters: choose the topology clusters, or leave it out")

    def require_secure_sums(self, rules: SumRules) -> None:
        if not rules.unverified_claims:
            raise BadTask(
                "sums.mode secure: a masked update cannot be checked against the budget it was sold for, so devices "
                "could claim more than they give; set sums.unverified_claims to true to pay by their claims, or leave "
                "sums out"
            )


class BudgetSaleDelivery(SaleDelivery):
    """A noised gradient step for each budget."""

    def require_paid_budget(self, item: pb.WorkItem, budget: float) -> None:
        least = LocalSteps.of(self.specification.training).least_budget
        if budget < least:
            raise BadUpdate(f"a budget of {budget:g} is below the least one of {least:g}; decline the round")

    def longest(self, budget: float, samples: int, elements: int) -> float:
        return LocalSteps.of(self.specification.training).largest_change(budget, samples, elements)

    def inspect(self, update: Update) -> dict[str, float]:
        return super().inspect(update) | {NORM: update.norm}


class BudgetSaleCombination(Combination):
    """A mean that flags unusual norms."""

    def flagged(self, participations: Sequence[Participation], elements: int) -> dict[str, str]:
        """Norms that stand out as shares of the largest norm for each device's own budget and samples."""
        steps = LocalSteps.of(self.specification.training)
        shares = {
            p.device_id: p.metrics[NORM] / steps.largest_change(p.budget, p.samples, elements)
            for p in participations
            if p.state is ParticipationState.DELIVERED and NORM in p.metrics
        }
        return {
            device: f"its norm is {odd.value:.3g} of the limit for its budget, {odd.deviations:.1f} deviations from "
            f"the median of {odd.median:.3g}; it was averaged and paid, please review it"
            for device, odd in stand_out(shares).items()
        }


class BudgetSale(Sale):
    """Gradients sold for a budget."""

    incentives = ("stackelberg",)
    preset = "market"

    task_check_class = BudgetSaleTaskCheck
    delivery_class = BudgetSaleDelivery
    combination_class = BudgetSaleCombination

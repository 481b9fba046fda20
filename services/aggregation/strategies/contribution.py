"""Contribution: a star that divides each round's pot by the worth of each update to the model.

The publisher's evaluator values the models of coalitions (`coterie task evaluate`); Shapley values follow, and pricing
divides the pot by them. A coalition's model is a subtraction from the exact sum, so the rule must be a mean. With
secure sums the server sees the cohorts' sums: each is valued, and its devices share its value by their weights in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from coterie.parameters.task import LEAST_COHORT
from services.aggregation.domain.records import Participation
from services.aggregation.domain.rules.choice import Choice
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadTask
from services.aggregation.strategies.base import Strategy
from services.aggregation.strategies.parts.settlement import Settlement
from services.aggregation.strategies.parts.task_check import TaskCheck


class ContributionTaskCheck(TaskCheck):
    """Coalitions must be computable."""

    def require_rule(self, choice: Choice) -> None:
        if not choice.is_mean:
            raise BadTask(
                f"rule {choice.name}: a coalition's model is a subtraction from a mean, and {choice.name} makes none; "
                "leave the rule out, choose an optimiser, or another incentive"
            )

    def require_secure_sums(self, rules: SumRules) -> None:
        if rules.cohort_devices and self.specification.min_devices >= 2 * rules.cohort_devices:
            return
        most = self.specification.min_devices // 2
        cohorts = f"give sums.cohort_devices from {LEAST_COHORT} to {most}"
        if most < LEAST_COHORT:
            cohorts = f"raise min_devices to {2 * LEAST_COHORT} and give sums.cohort_devices {LEAST_COHORT}"
        raise BadTask(
            "sums.mode secure: a single sum hides the contribution of every device; with several each sum is valued, "
            f"and its devices share its value: {cohorts}, leave sums out, or choose another incentive"
        )


class ContributionSettlement(Settlement):
    """Shares by contribution."""

    is_evaluated = True

    def share(self, participation: Participation, values: Mapping[str, float]) -> float:
        return max(values.get(participation.device_id, 0.0), 0.0)


class Contribution(Strategy):
    """A star whose devices are paid by the worth of their updates."""

    topology = "star"
    privacies = ("none", "uniform")
    incentives = ("contribution",)
    reasons = MappingProxyType({"contribution": "each update must be seen on its own"})

    task_check_class = ContributionTaskCheck
    settlement_class = ContributionSettlement

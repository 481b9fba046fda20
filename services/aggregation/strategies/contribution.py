"""Contribution: a star whose rounds' pots are shared out by what each update was worth to the model.

The publisher's evaluator says what coalitions' models are worth (`coterie task evaluate`); Shapley values follow, and
pricing divides the pot by them. A coalition's model is a subtraction from the exact sum, which only a mean has. With
secure sums the cohorts' sums are what is seen: each is valued, and its devices share its value by their weights in it.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.aggregation.domain.records import Participation
from services.aggregation.domain.rules.choice import Choice
from services.aggregation.domain.secure_terms import LEAST_COHORT, SumRules
from services.aggregation.errors import BadTask
from services.aggregation.strategies import strategy
from services.aggregation.strategies.star import Star


@strategy(
    "star",
    privacy=("none", "uniform"),
    incentive=("contribution",),
    why={"contribution": "each update must be seen on its own"},
)
class Contribution(Star):
    """Paid by worth."""

    is_valued = True

    def check_rule(self, choice: Choice) -> None:
        super().check_rule(choice)
        if not choice.is_mean:
            raise BadTask(
                f"rule {choice.name}: a coalition's model is a subtraction from a mean, and {choice.name} makes none; "
                "leave the rule out, choose an optimiser, or another incentive"
            )

    def check_sums(self, rules: SumRules) -> None:
        if rules.cohort_devices and self.specification.min_devices >= 2 * rules.cohort_devices:
            return
        most = self.specification.min_devices // 2
        cohorts = f"give sums.cohort_devices from {LEAST_COHORT} to {most}"
        if most < LEAST_COHORT:
            cohorts = f"raise min_devices to {2 * LEAST_COHORT} and give sums.cohort_devices {LEAST_COHORT}"
        raise BadTask(
            "sums.mode secure: one sum hides what anybody contributed; with several each sum is valued, and its "
            f"devices share its value: {cohorts}, leave sums out, or choose another incentive"
        )

    def quality(self, participation: Participation, values: Mapping[str, float]) -> float:
        return max(values.get(participation.device_id, 0.0), 0.0)

"""Survey: devices sell noised answers to one question, asked once; what comes of it is an estimate and its error.

[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection. An answer is a share in [0, 1] of the
question's range plus noise of the variance the device was paid for; its norm is the answer, so it is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from coterie.questions import LARGEST_DEVIATIONS, Question, estimate
from coterie.records.words import ParticipationState
from services.aggregation.domain.accumulator import Accumulator
from services.aggregation.domain.records import Participation
from services.aggregation.domain.rules.choice import Choice
from services.aggregation.errors import BadTask
from services.aggregation.ways import way
from services.aggregation.ways.sale import Sale


@way("star", privacy=("priced",), incentive=("correlated",), preset="survey")
class Survey(Sale):
    """Answers sold with a variance."""

    commodity = "variance"

    def check(self) -> None:
        if self.specification.rounds != 1:
            raise BadTask(f"a survey asks once: rounds must be 1, not {self.specification.rounds}")
        super().check()

    def check_rule(self, choice: Choice) -> None:
        if not choice.is_plain:
            raise BadTask(f"rule {choice.name}: a survey asks for a sum and has no model; leave the rule out")

    def check_terms(self) -> None:
        Question.of(self.specification.parameters)

    def largest_norm(self, budget: float, samples: int, elements: int) -> float:
        return 1.0 + LARGEST_DEVIATIONS * math.sqrt(budget)

    def findings(self, everybody: Sequence[Participation], sums: Mapping[int, Accumulator]) -> dict[str, float]:
        return self.estimate(everybody, float(sums[0].total()[0])) if 0 in sums else {}

    def estimate(self, everybody: Sequence[Participation], sum_of_shares: float) -> dict[str, float]:
        """Estimate, error bound and certified accuracy; nothing when nobody answered.

        `accuracy` is [CAPP]'s certificate max(0, 1 − Λ/ε²) that the sum of the shares is off by less than the task's
        `error` ε.
        """
        variances = [p.budget for p in everybody if p.state is ParticipationState.DELIVERED]
        if not variances:
            return {}
        found = estimate(Question.of(self.specification.parameters), sum_of_shares, variances)
        error = self.specification.parameters.get("pricing", {}).get("error")
        metrics = {
            "estimate": found.mean,
            "error_bound": found.error,
            "standard_error": found.standard_error,
            "answers": float(found.answers),
            "total_variance": found.total_variance,
        }
        return metrics | ({} if error is None else {"accuracy": max(0.0, 1.0 - found.total_variance / error**2)})

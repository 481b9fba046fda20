"""Answers sold: devices sell noised answers to one question, asked once; what comes is an estimate and its error.

[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection. An answer is a share in [0, 1] of the
question's range plus noise of the variance the device was paid for; its norm is the answer, so it is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from coterie.privacy.survey_question import LARGEST_DEVIATIONS, Question, estimate
from coterie.records.enums import ParticipationState
from coterie.secure_sums.answers import answer_fault, answer_noise, answer_scale
from coterie.secure_sums.grid import Extent
from coterie.secure_sums.terms import Terms
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.accumulator import Accumulator
from services.aggregation.domain.model_steps import read_values
from services.aggregation.domain.records import Delivery, Participation
from services.aggregation.domain.rules.choice import Choice
from services.aggregation.errors import BadTask, BadUpdate
from services.aggregation.strategies import strategy
from services.aggregation.strategies.roster import Roster, Update
from services.aggregation.strategies.sale import Sale


@strategy("star", privacy=("priced",), incentive=("correlated",), preset="survey")
class AnswerSale(Sale):
    """Answers sold with a variance."""

    commodity = "variance"
    in_step = "a survey asks once and has no model that moves on"

    def check(self) -> None:
        if self.specification.rounds != 1:
            raise BadTask(f"a survey asks once: rounds must be 1, not {self.specification.rounds}")
        super().check()

    def check_rule(self, choice: Choice) -> None:
        if not choice.is_plain:
            raise BadTask(f"rule {choice.name}: a survey asks for a sum and has no model; leave the rule out")

    def check_terms(self) -> None:
        Question.of(self.specification.parameters)

    def check_delivery(self, roster: Roster, delivery: Delivery) -> None:
        super().check_delivery(roster, delivery)
        if delivery.weight != 1.0:
            raise BadUpdate(f"an answer counts once: send it with the weight 1, not {delivery.weight:g}")

    def weigh(self, roster: Roster, delivery: Delivery) -> float:
        """Everybody counts alike, however many samples it speaks for."""
        return 1.0

    def check_claim(self, item: pb.WorkItem, budget: float) -> None:
        """The variance must be one that is paid for."""
        offer, variance = item.parameters.offer, budget
        low, high = offer.variance_low, offer.variance_high
        if high > 0.0 and not low * (1 - 1e-9) <= variance <= high * (1 + 1e-9):
            raise BadUpdate(f"a variance of {variance:g} is not between {low:g} and {high:g} as offered")

    def inspect(self, update: Update) -> dict[str, float]:
        measured = super().inspect(update)
        share = float(read_values(update.layout.tensors[0], update.read, 0, 1)[0])
        least = 1.0 - self.longest(update.delivery.budget, 1, 1)
        if share < least:
            raise BadUpdate(f"an answer of {share:.4g} is below the {least:.4g} that its variance allows")
        return measured

    def longest(self, budget: float, samples: int, elements: int) -> float:
        return 1.0 + LARGEST_DEVIATIONS * math.sqrt(budget)

    # --- in secure sums ----------------------------------------------------------------------------------------------

    @property
    def variances(self) -> tuple[float, float]:
        """The least and the most variance that an answer may have."""
        told = self.specification.parameters["pricing"]
        high = told.get("variance_high")
        return float(told["variance_low"]), math.exp(told["constant"]) if high is None else float(high)

    @property
    def clip_norm(self) -> float:
        """An answer is a share of the range."""
        return 1.0

    @property
    def sum_scale(self) -> int:
        return answer_scale(self.variances[1])

    def sum_noise(self, plan: topology.Plan) -> float:
        """The least deviation that each answer has."""
        return math.sqrt(self.variances[0])

    def sum_multiplier(self, noise: float, honest: int) -> float:
        return answer_noise(honest, self.variances[0])

    def fault_of_sum(self, extent: Extent, terms: Terms, budgets: Sequence[float]) -> str | None:
        return answer_fault(extent.highest or extent.lowest, budgets, terms)

    def findings_opened(self, everybody: Sequence[Participation], total: Callable[[], float]) -> dict[str, float]:
        return self.estimate(everybody, total())

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
            "interval": found.interval,
            "standard_error": found.standard_error,
            "answers": float(found.answers),
            "total_variance": found.total_variance,
        }
        return metrics | ({} if error is None else {"accuracy": max(0.0, 1.0 - found.total_variance / error**2)})

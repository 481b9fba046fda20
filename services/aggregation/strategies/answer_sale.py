"""Answer sale: devices sell noised answers to one question, asked once; the result is an estimate and its error.

[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection. An answer is a share in [0, 1] of the
question's range plus noise of the variance that the device was paid for. Its norm is the answer, so it is not stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from coterie.parameters.pricing import CorrelatedParameters
from coterie.parameters.task import OfferParameters
from coterie.privacy.question_text import LARGEST_DEVIATIONS, Question, estimate
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
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.errors import BadTask, BadUpdate
from services.aggregation.strategies.parts.combination import Combination
from services.aggregation.strategies.parts.secure_sums import SecureSumPolicy
from services.aggregation.strategies.parts.terms import TaskTerms
from services.aggregation.strategies.roster import Roster, Update
from services.aggregation.strategies.sale import Sale, SaleDelivery, SaleTaskCheck
from services.kit.rpc.parameters import from_struct


class AnswerTerms(TaskTerms):
    """Terms of a survey."""

    @property
    def clip_norm(self) -> float:
        """An answer is a share of the range."""
        return 1.0

    @property
    def variances(self) -> tuple[float, float]:
        """The least and the largest variance of an answer."""
        prices = CorrelatedParameters.of(self.specification.parameters)
        return prices.variance_low, prices.most_variance


class AnswerSaleTaskCheck(SaleTaskCheck):
    """One round, one question."""

    lockstep_reason = "a survey asks once and has no model that moves on"

    def require_valid(self) -> None:
        if self.specification.rounds != 1:
            raise BadTask(f"a survey asks once: rounds must be 1, not {self.specification.rounds}")
        super().require_valid()

    def require_rule(self, choice: Choice) -> None:
        if not choice.is_plain:
            raise BadTask(f"rule {choice.name}: a survey asks for a sum and has no model; leave the rule out")

    def require_terms(self) -> None:
        Question.of(self.specification.parameters)


class AnswerSaleDelivery(SaleDelivery):
    """A noised answer of weight 1."""

    commodity = "variance"

    def require_valid(self, roster: Roster, delivery: Delivery) -> None:
        super().require_valid(roster, delivery)
        if delivery.weight != 1.0:
            raise BadUpdate(f"an answer counts once: send it with the weight 1, not {delivery.weight:g}")

    def weight(self, roster: Roster, delivery: Delivery) -> float:
        """All answers count alike, however many samples a device has."""
        return 1.0

    def require_paid_budget(self, item: pb.WorkItem, budget: float) -> None:
        """The variance must be one that the offer pays for."""
        offer, variance = OfferParameters.of(from_struct(item.parameters)), budget
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


class AnswerSaleSecureSums(SecureSumPolicy):
    """Secure sums of answers."""

    terms: AnswerTerms

    @property
    def scale(self) -> int:
        return answer_scale(self.terms.variances[1])

    def noise(self, plan: topology.Plan) -> float:
        """The least standard deviation of an answer."""
        return math.sqrt(self.terms.variances[0])

    def terms_noise(self, noise: float, honest: int) -> float:
        return answer_noise(honest, self.terms.variances[0])

    def find_fault(self, extent: Extent, terms: Terms, budgets: Sequence[float]) -> str | None:
        return answer_fault(extent.highest or extent.lowest, budgets, terms)


class AnswerSaleCombination(Combination):
    """An estimate instead of a model."""

    def secure_metrics(self, participations: Sequence[Participation], total: Callable[[], float]) -> dict[str, float]:
        return estimate_metrics(self.specification, participations, total())

    def metrics(self, participations: Sequence[Participation], sums: Mapping[int, Accumulator]) -> dict[str, float]:
        return estimate_metrics(self.specification, participations, float(sums[0].total()[0])) if 0 in sums else {}


class AnswerSale(Sale):
    """Answers sold with a variance."""

    incentives = ("correlated",)
    preset = "survey"

    terms_class = AnswerTerms
    task_check_class = AnswerSaleTaskCheck
    delivery_class = AnswerSaleDelivery
    combination_class = AnswerSaleCombination
    secure_sums_class = AnswerSaleSecureSums


def estimate_metrics(
    specification: TaskSpecification, participations: Sequence[Participation], sum_of_shares: float
) -> dict[str, float]:
    """Estimate, error bound and certified accuracy; empty without answers.

    `accuracy` is [CAPP]'s certificate max(0, 1 − Λ/ε²) that the sum of the shares is off by less than the task's
    `error` ε.
    """
    variances = [p.budget for p in participations if p.state is ParticipationState.DELIVERED]
    if not variances:
        return {}
    result = estimate(Question.of(specification.parameters), sum_of_shares, variances)
    error = CorrelatedParameters.of(specification.parameters).error
    return {
        "estimate": result.mean,
        "error_bound": result.error,
        "interval": result.interval,
        "standard_error": result.standard_error,
        "answers": float(result.answers),
        "total_variance": result.total_variance,
        "accuracy": max(0.0, 1.0 - result.total_variance / error**2),
    }

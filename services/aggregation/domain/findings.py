"""What a survey found, as figures of its round."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.survey import Question, estimate
from services.aggregation.domain.records import Participation
from services.aggregation.domain.tasks import TaskSpecification


def survey_metrics(
    specification: TaskSpecification, everybody: Sequence[Participation], sum_of_shares: float
) -> dict[str, float]:
    """Estimate, error bound and certified accuracy of a closed survey; nothing when nobody answered.

    `accuracy` is [CAPP]'s certificate max(0, 1 − Λ/ε²) that the sum of the shares is off by less than the task's
    `error` ε.
    """
    variances = [p.budget for p in everybody if p.state == "delivered"]
    if not variances:
        return {}
    found = estimate(Question.of(specification.parameters), sum_of_shares, variances)
    error = specification.parameters.get("pricing", {}).get("error")
    metrics = {
        "estimate": found.mean,
        "error_bound": found.error,
        "standard_error": found.standard_error,
        "answers": float(found.answers),
        "total_variance": found.total_variance,
    }
    return metrics | ({} if error is None else {"accuracy": max(0.0, 1.0 - found.total_variance / error**2)})

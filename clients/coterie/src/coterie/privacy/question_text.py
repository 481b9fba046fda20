"""A survey's question, and the estimate from its noised answers.

[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from coterie.parameters.task import SurveyParameters

LARGEST_DEVIATIONS = 6.5
"""Standard deviations of noise that an honest answer exceeds once in 10 billion times."""
CONFIDENCE = 0.95
"""Least probability with which the error bound of a published estimate holds."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question whose answer is a number between `low` and `high`.

    Answers travel as shares of that range, (answer − low)/(high − low), and all variances are in units of the range
    squared, so that prices do not depend on the unit of length.
    """

    text: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"a question needs finite bounds low < high, got {self.low} and {self.high}")
        if not 1 <= len(self.text) <= 500:
            raise ValueError(f"a question has 1 to 500 characters, got {len(self.text)}")

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Question:
        """From a task's parameters, under "survey"."""
        survey = SurveyParameters.validate(parameters)
        return cls(survey.question, survey.low, survey.high)

    @property
    def span(self) -> float:
        """high − low."""
        return self.high - self.low

    def share(self, answer: float) -> float:
        """Return an answer as a share of the range; an answer beyond it counts as the nearer end."""
        return (min(max(answer, self.low), self.high) - self.low) / self.span


@dataclass(frozen=True, slots=True)
class Estimate:
    """A survey's result, in the unit of the question.

    Attributes:
        mean: of the answers, on their scale.
        error: distance from the true mean that is exceeded with probability 1 − CONFIDENCE at most, by Chebyshev's
            inequality; covers the noise alone, not devices that were not asked or did not answer.
        interval: distance from the true mean that is exceeded with probability 1 − CONFIDENCE if the noise is Gaussian
            with the reported variances; Chebyshev's bound holds for any noise and is twice as wide.
        standard_error: standard deviation of the noise in the mean.
        answers: number of answers.
        total_variance: Λ, of the sum of all answers, in units of the range squared.
    """

    mean: float
    error: float
    interval: float
    standard_error: float
    answers: int
    total_variance: float


def is_survey(parameters: Mapping[str, Any]) -> bool:
    """Whether a task with these parameters asks a question."""
    return bool(parameters.get(SurveyParameters.section))


def estimate(question: Question, sum_of_shares: float, variances: ArrayLike) -> Estimate:
    """Estimate the mean answer from the sum of the noised shares and their variances.

    A mean beyond the range becomes the nearer end, which is closer to the true mean.
    """
    given = np.asarray(variances, dtype=np.float64)
    if given.ndim != 1 or given.size == 0 or not np.isfinite(given).all() or (given < 0).any():
        raise ValueError("an estimate needs one finite variance of at least 0 per answer, and at least one answer")
    count, total = given.size, float(given.sum())
    deviation = math.sqrt(total) / count * question.span
    error = deviation / math.sqrt(1.0 - CONFIDENCE)
    interval = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2.0) * deviation
    share = min(1.0, max(0.0, sum_of_shares / count))
    return Estimate(
        mean=question.low + share * question.span,
        error=error,
        interval=interval,
        standard_error=deviation,
        answers=count,
        total_variance=total,
    )

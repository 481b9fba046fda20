"""What a survey asks, and what its noised answers say together.

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
"""Standard deviations of noise that an honest answer stays within but once in 10 billion times."""
CONFIDENCE = 0.95
"""Chance with which the error bound of a published estimate holds at least."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a survey asks: a number between `low` and `high`.

    Answers travel as shares of that range, (answer − low)/(high − low), and all variances are in units of the range
    squared, so that prices do not depend on whether a length is told in metres or miles.
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
        """An answer as a share of the range; beyond it, the nearer end."""
        return (min(max(answer, self.low), self.high) - self.low) / self.span


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a survey found, in the question's own unit.

    Attributes:
        mean: of the answers, on their scale.
        error: distance from the true mean that is exceeded with chance 1 − CONFIDENCE at most, by Chebyshev's
            inequality; counts the noise alone, not who was not asked or did not answer.
        interval: distance from the true mean that is exceeded with chance 1 − CONFIDENCE, the noise being Gaussian
            of the variances told; Chebyshev's holds for any noise and is twice as wide.
        standard_error: standard deviation of the noise in the mean.
        answers: how many.
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
    """The estimate from the sum of the noised shares and the variances that came with them.

    A mean of answers lies on their scale, so one beyond it is brought to its end, which is nearer to the true one; how
    little an estimate with so much noise is worth is in its error.
    """
    told = np.asarray(variances, dtype=np.float64)
    if told.ndim != 1 or told.size == 0 or not np.isfinite(told).all() or (told < 0).any():
        raise ValueError("an estimate needs one finite variance of at least 0 per answer, and at least one answer")
    count, total = told.size, float(told.sum())
    deviation = math.sqrt(total) / count * question.span
    error = deviation / math.sqrt(1.0 - CONFIDENCE)
    interval = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2.0) * deviation
    share = min(1.0, max(0.0, sum_of_shares / count))
    return Estimate(question.low + share * question.span, error, interval, deviation, count, total)

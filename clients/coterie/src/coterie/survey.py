"""The device's own move in a survey: how noisy an answer to give for the payment offered.

[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection.

Offered r − θq for an answer with noise variance q, a user who cares s_j for the privacy of user j adds noise until the
total variance Λ reaches φ, the root of Σ_j s_j/(φ + v_j) = θ:

    q = clip(φ − Σ_{others} q_j, q_lo, q_hi)                                    (19), in variances
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_STEPS = 200
LARGEST_DEVIATIONS = 6.5
"""Standard deviations of noise that an honest answer stays within but once in 10 billion times."""
CONFIDENCE = 0.95
"""Chance with which the error bound of a published estimate holds at least."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the device will do: add noise of this variance, for this payment."""

    variance: float
    payment: float

    @property
    def deviation(self) -> float:
        """Standard deviation σ = √q of the noise."""
        return math.sqrt(self.variance)


def ideal_total(slope: float, care: ArrayLike, hidden: ArrayLike) -> float:
    """φ: the total variance at which more noise is no longer worth its price.

    +inf if noise is free (slope ≤ 0), −inf if the user cares for nobody.

    Parameters
    ----------
    slope : θ.
    care : s_j ≥ 0 for every user j, this one included, shape (n,).
    hidden : v_j ≥ 0 as published by the platform, shape (n,); inf where nothing can betray the user.
    """
    s, v = np.asarray(care, dtype=np.float64), np.asarray(hidden, dtype=np.float64)
    if s.shape != v.shape or s.ndim != 1:
        raise ValueError(f"care and hidden must have one entry per user, got shapes {s.shape} and {v.shape}")
    if np.isnan(s).any() or (s < 0).any() or np.isnan(v).any() or (v < 0).any():
        raise ValueError("care and hidden must not be negative or NaN")
    if slope <= 0:
        return math.inf
    counts = (s > 0) & np.isfinite(v)
    if not counts.any():
        return -math.inf
    s, least = s[counts], float(v[counts].min())
    gap = v[counts] - least
    low, high = float(s[gap == 0].sum()) / slope, float(s.sum()) / slope
    for _ in range(_STEPS):  # bisection; the bracket is exact at both ends
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (middle, high) if float(np.sum(s / (middle + gap))) > slope else (low, middle)
    return 0.5 * (low + high) - least


def decide(
    base: float,
    slope: float,
    others_variance: float,
    *,
    care: ArrayLike,
    hidden: ArrayLike,
    variance_low: float,
    variance_high: float,
) -> Answer:
    """The best noise for an offer (r, θ) while the others add `others_variance` altogether."""
    if not 0 < variance_low <= variance_high:
        raise ValueError(f"need 0 < variance_low ≤ variance_high, got {variance_low} and {variance_high}")
    wanted = ideal_total(slope, care, hidden) - others_variance
    variance = min(max(wanted, variance_low), variance_high)
    return Answer(variance, base - slope * variance)


def utility(payment: float, total_variance: float, *, care: ArrayLike, hidden: ArrayLike, constant: float) -> float:
    """U = p − Σ_j s_j (C − ln(Λ + v_j)) ([CAPP] eq. 10)."""
    s, v = np.asarray(care, dtype=np.float64), np.asarray(hidden, dtype=np.float64)
    counts = s > 0
    return payment - float(np.sum(s[counts] * (constant - np.log(total_variance + v[counts]))))


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
        section = parameters.get("survey")
        if not isinstance(section, Mapping) or not {"question", "low", "high"} <= section.keys():
            raise ValueError('a survey\'s parameters need "survey": {"question": …, "low": …, "high": …}')
        return cls(str(section["question"]), float(section["low"]), float(section["high"]))

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
        mean: of the answers.
        error: distance from the true mean that is exceeded with chance 1 − CONFIDENCE at most, by Chebyshev's
            inequality; counts the noise alone, not who was not asked or did not answer.
        standard_error: standard deviation of the noise in the mean.
        answers: how many.
        total_variance: Λ, of the sum of all answers, in units of the range squared.
    """

    mean: float
    error: float
    standard_error: float
    answers: int
    total_variance: float


def estimate(question: Question, sum_of_shares: float, variances: ArrayLike) -> Estimate:
    """The estimate from the sum of the noised shares and the variances that came with them."""
    told = np.asarray(variances, dtype=np.float64)
    if told.ndim != 1 or told.size == 0 or not np.isfinite(told).all() or (told < 0).any():
        raise ValueError("an estimate needs one finite variance of at least 0 per answer, and at least one answer")
    count, total = told.size, float(told.sum())
    deviation = math.sqrt(total) / count * question.span
    error = deviation / math.sqrt(1.0 - CONFIDENCE)
    return Estimate(question.low + sum_of_shares / count * question.span, error, deviation, count, total)

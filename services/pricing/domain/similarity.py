"""How much users' data have in common, estimated from public records.

[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection, section II: data are a Gaussian Markov
field, p(x) ∝ exp(−½ Σ_{i<j} w_ij (x_i − x_j)²). [CAPP] takes w as given; where every two of m users have the same w,
n records of them have the likelihood w^{(m−1)n/2} e^{−wQ/2}, Q = Σ_records Σ_{i<j} (x_i − x_j)², so that

    ŵ = ν/Q,  ν = (m − 1)n,  and  wQ ~ χ²_ν,

which gives an exact interval. Records must be independent: from a time series, take moments far apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from services.kit.errors import InvalidInput
from services.pricing.domain.influence import Matrix

CONFIDENCE = 0.95
"""Probability that the interval holds the true w."""
FEWEST = 5
"""Least number of records; with fewer the interval is wider than the estimate is large."""


class InvalidRecords(InvalidInput):
    """Records that do not determine how much users have in common."""


@dataclass(frozen=True, slots=True)
class Similarity:
    """w of each pair of a group, per squared range of the question, with its interval."""

    correlation: float
    low: float
    high: float
    records: int


def estimate(records: Matrix, span: float) -> Similarity:
    """Estimate the similarity of a group from its records: a row each, a column per user, in the question's unit."""
    if not 0.0 < span < np.inf:
        raise InvalidRecords(f"the question's range must be above 0 and finite, got {span}; correct its low and high")
    rows, users = records.shape
    if users < 2 or rows < FEWEST:
        raise InvalidRecords(
            f"a group needs at least 2 users and {FEWEST} records of all of them, got {users} and {rows}; add some"
        )
    if not np.isfinite(records).all():
        raise InvalidRecords("a record is not a finite number; leave out records with gaps")
    shares = records / span
    # Σ_{i<j} (x_i − x_j)² = m Σ_i (x_i − mean)².
    apart = users * float(((shares - shares.mean(axis=1, keepdims=True)) ** 2).sum())
    if apart == 0.0:
        raise InvalidRecords("all records of the group are equal, so w has no estimate; give records that vary")
    freedom = (users - 1) * rows
    low, high = chi2.ppf([(1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0], freedom) / apart
    return Similarity(freedom / apart, float(low), float(high), rows)

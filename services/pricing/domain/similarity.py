"""How much users' data have in common, estimated from records that are nobody's secret.

[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection, section II: data are a Gaussian Markov
field, p(x) ∝ exp(−½ Σ_{i<j} w_ij (x_i − x_j)²). [CAPP] takes w as given; where every two of m users have the same w,
n records of them have the likelihood w^{(m−1)n/2} e^{−wQ/2}, Q = Σ_records Σ_{i<j} (x_i − x_j)², so that

    ŵ = ν/Q,  ν = (m − 1)n,  and  wQ ~ χ²_ν,

which gives an exact interval. Records must be independent of each other: of a series in time, take moments far apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from services.kit.errors import InvalidInput
from services.pricing.domain.influence import Matrix

CONFIDENCE = 0.95
"""Chance with which the interval holds the true w."""
FEWEST = 5
"""Records below which the interval is wider than its estimate is large."""


class InvalidRecords(InvalidInput):
    """Records that cannot tell how much users have in common."""


@dataclass(frozen=True, slots=True)
class Similarity:
    """w of every two of a group, per squared range of the question, with its interval."""

    correlation: float
    low: float
    high: float
    records: int


def estimate(records: Matrix, span: float) -> Similarity:
    """The similarity of a group from its records, one row each and one column per user, in the question's unit."""
    if not 0.0 < span < np.inf:
        raise InvalidRecords(f"the question's range must be above 0 and finite, not {span}; give its low and high")
    rows, users = records.shape
    if users < 2 or rows < FEWEST:
        raise InvalidRecords(
            f"a group needs two users or more and {FEWEST} records of all of them, not {users} and {rows}; add some"
        )
    if not np.isfinite(records).all():
        raise InvalidRecords("a record is no finite number; leave records with gaps out")
    shares = records / span
    # Σ_{i<j} (x_i − x_j)² = m Σ_i (x_i − mean)².
    apart = users * float(((shares - shares.mean(axis=1, keepdims=True)) ** 2).sum())
    if apart == 0.0:
        raise InvalidRecords("all records of the group are equal: no w is large enough; check that they are records")
    freedom = (users - 1) * rows
    low, high = chi2.ppf([(1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0], freedom) / apart
    return Similarity(freedom / apart, float(low), float(high), rows)

"""How much noise a device adds to its answer for the offered payment.

[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection.

Offered r − θq for an answer with noise variance q, a user who cares s_j for the privacy of user j adds noise until the
total variance Λ reaches φ, the root of Σ_j s_j/(φ + v_j) = θ:

    q = clip(φ − Σ_{others} q_j, q_lo, q_hi)                                    (19), in variances
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

_STEPS = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """The device's choice: noise of this variance, for this payment."""

    variance: float
    payment: float

    @property
    def deviation(self) -> float:
        """Standard deviation σ = √q of the noise."""
        return math.sqrt(self.variance)


def ideal_total(slope: float, care: ArrayLike, hidden: ArrayLike) -> float:
    """φ: the total variance at which more noise is no longer worth its price.

    +inf if noise is free (slope ≤ 0), −inf if the user cares for no user's privacy.

    Parameters
    ----------
    slope : θ.
    care : s_j ≥ 0 for every user j, this one included, shape (n,).
    hidden : v_j ≥ 0 as published by the platform, shape (n,); inf where no other answer can reveal the user's.
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
    """Return the best noise for an offer (r, θ) while the others add `others_variance` in total."""
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

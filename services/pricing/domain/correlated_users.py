"""The noise that correlated users add when they are paid for accuracy: their equilibrium, in variances.

[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection, sections II and III.A.

User i adds noise of variance q_i in [q_lo, q_hi], Λ = Σq_i, and Var(ŷ | x_i) = Λ + v_i where v_i comes from the
correlation graph. With care s_ij of i for j:

    privacy loss  l_i = C − ln(Λ + v_i)                                         (8)
    privacy cost  c_i(Λ) = Σ_j s_ij l_j                                         (9)
    marginal      f_i(Λ) = Σ_j s_ij/(Λ + v_j)
    payment       p_i = r − θ_i q_i,   utility U_i = p_i − c_i                  (3), (10)

Unlike [CAPP] eq. (19), best responses and cases are written in variances (the printed rule mixes standard deviations
with variances and is not a best response), and the total Λ of an equilibrium is unique.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.sparse.csgraph import connected_components

from services.kit.errors import InvalidInput
from services.pricing.domain.influence import Matrix, Vector

VarianceModel: TypeAlias = Literal["paper", "collapsed", "exact"]

_ROOT_STEPS = 100


class InvalidSurvey(InvalidInput):
    """A correlation, a care or a bound of the survey is outside its range."""


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """Who cares about whom, how much variance correlation hides, and the noise that users may add.

    Attributes
    ----------
    hidden : v ≥ 0 (may be inf), the correlation part of the conditional variance, shape (n,).
    care : s ≥ 0, shape (n, n), diagonal included.
    constant : C of the privacy loss.
    variance_low, variance_high : 0 < q_lo ≤ q_hi (may be inf).
    """

    hidden: Vector
    care: Matrix
    constant: float = 10.0
    variance_low: float = 0.01
    variance_high: float = math.exp(10.0)

    def __post_init__(self) -> None:
        n = self.hidden.size
        if n == 0:
            raise InvalidSurvey("a survey needs at least one user")
        if self.care.shape != (n, n):
            raise InvalidSurvey(f"care must be {n}×{n}, like correlation, got {self.care.shape}")
        if not np.isfinite(self.care).all() or (self.care < 0).any():
            raise InvalidSurvey(f"care must be finite and not negative, got {self.care.min()}")
        if np.isnan(self.hidden).any() or (self.hidden < 0).any():
            raise InvalidSurvey(f"hidden variances must not be negative, got {self.hidden.min()}")
        if not math.isfinite(self.constant):
            raise InvalidSurvey(f"constant must be finite, got {self.constant}")
        if not 0.0 < self.variance_low <= self.variance_high or math.isinf(self.variance_low):
            raise InvalidSurvey(
                f"variances need 0 < variance_low ≤ variance_high, got {self.variance_low} and {self.variance_high}"
            )

    @property
    def users(self) -> int:
        """Number of users n."""
        return int(self.hidden.size)


@dataclass(frozen=True, slots=True, eq=False)
class SurveyEquilibrium:
    """Users' variances, their (unique) total, and whether the split itself is unique (no tie at the total)."""

    variances: Vector
    total: float
    unique: bool


def hidden_variances(correlation: Matrix, model: VarianceModel = "paper", *, known: tuple[int, ...] = ()) -> Vector:
    """v_i: the remaining variance of the others' data, given x_i and the data of `known`.

    * "paper": (m − 1)²/w_i with m = n − |known| ([CAPP] eq. 7), derived by forcing all unknown data to one value;
      meaningful only for an empty known set.
    * "collapsed": the same forcing with the right denominator, the weight between the unknown users and all others.
    * "exact": 1ᵀ(L_MM)⁻¹1 over the unknown others M; n²(L⁺)_ii when nothing is known. Never below "collapsed".

    A user without correlation to the rest has an infinite variance; when every user is known it is 0.
    """
    weights = _checked(correlation)
    n = weights.shape[0]
    if any(not 0 <= i < n for i in known) or len(set(known)) != len(known):
        raise InvalidSurvey(f"known must hold distinct users between 0 and {n - 1}, got {known}")
    if model == "exact" and not known:
        return _exact_all(weights)
    if model == "paper" and not known and n > 1:
        w = weights.sum(axis=1)
        squared: Vector = np.divide((n - 1) ** 2, w, out=np.full(n, math.inf), where=w > 0)
        return squared
    return np.array([_hidden(weights, i, model, known) for i in range(n)])


def _hidden(weights: Matrix, user: int, model: VarianceModel, known: tuple[int, ...]) -> float:
    n = weights.shape[0]
    unknown = np.setdiff1d(np.arange(n), [*known, user])
    if unknown.size == 0:
        return 0.0
    if model == "exact":
        laplacian = np.diag(weights.sum(axis=1)) - weights
        return _quadratic(laplacian[np.ix_(unknown, unknown)])
    rest = np.setdiff1d(np.arange(n), unknown)
    weight = weights[user].sum() if model == "paper" else weights[np.ix_(unknown, rest)].sum()
    return math.inf if weight == 0 else float(unknown.size**2 / weight)


def _quadratic(block: Matrix) -> float:
    """1ᵀ block⁻¹ 1; +inf when the block is singular: some unknown user is tied to no other user."""
    if np.linalg.matrix_rank(block, hermitian=True) < block.shape[0]:
        return math.inf
    return float(np.linalg.solve(block, np.ones(block.shape[0])).sum())


def _exact_all(weights: Matrix) -> Vector:
    """n²(L⁺)_ii for all i from one inverse: (L + J/n)⁻¹ = L⁺ + J/n when the graph is connected."""
    n = weights.shape[0]
    if n == 1:
        return np.zeros(1)
    if connected_components(weights > 0, directed=False)[0] > 1:
        return np.full(n, math.inf)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    scale = float(np.trace(laplacian)) / n  # scaling J/n equally keeps the sum well conditioned
    inverse = np.linalg.inv(laplacian + scale / n)
    hidden: Vector = n**2 * (np.diagonal(inverse) - 1.0 / (n * scale))
    return hidden


def _checked(correlation: Matrix) -> Matrix:
    weights = np.asarray(correlation, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1] or weights.shape[0] == 0:
        raise InvalidSurvey(f"correlation must be a square matrix with at least one user, got shape {weights.shape}")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise InvalidSurvey(f"correlation must be finite and not negative, got {weights.min()}")
    if not np.allclose(weights, weights.T, rtol=1e-9, atol=0.0):
        raise InvalidSurvey("correlation must be symmetric: w_ij = w_ji")
    if weights.diagonal().any():
        raise InvalidSurvey("correlation must have a zero diagonal: a user is not correlated with itself")
    return weights


def privacy_loss(survey: Survey, total: float) -> Vector:
    """l_i = C − ln(Λ + v_i) ([CAPP] eq. 8); −inf behind an infinite variance."""
    loss: Vector = survey.constant - np.log(total + survey.hidden)
    return loss


def privacy_cost(survey: Survey, total: float) -> Vector:
    """c_i(Λ) = Σ_j s_ij l_j ([CAPP] eq. 9); −inf for a user who cares about one that nothing can reveal."""
    loss = privacy_loss(survey, total)
    finite = np.isfinite(loss)
    cost = survey.care[:, finite] @ loss[finite]
    endless = survey.care[:, ~finite].sum(axis=1) > 0
    return np.where(endless, -math.inf, cost)


def marginal(survey: Survey, total: float) -> Vector:
    """f_i(Λ) = Σ_j s_ij/(Λ + v_j): what one more unit of variance saves user i."""
    return np.asarray(survey.care @ (1.0 / (total + survey.hidden)))


def ideal_totals(survey: Survey, slopes: Vector) -> Vector:
    """φ_i, the total variance at which user i would stop adding noise: f_i(φ_i) = θ_i ([CAPP] eq. 18).

    +inf where θ_i ≤ 0 (noise is free), −inf where a user cares about no privacy; negative values mean "always q_lo".

    With x = φ + v_min, v_min the least v_j the user cares about, the root lies between s(v_min)/θ and s_i/θ; Newton's
    method on 1/f (concave, increasing) from the left end of the bracket never overshoots, and bisection guards it.
    """
    slopes = np.asarray(slopes, dtype=np.float64)
    hidden = np.where(np.isfinite(survey.hidden), survey.hidden, 0.0)
    care = np.where(np.isfinite(survey.hidden), survey.care, 0.0)
    cared = care.sum(axis=1)
    least = np.min(np.where(care > 0, hidden, math.inf), axis=1)
    out = np.where(slopes <= 0, math.inf, -math.inf)
    rows = np.flatnonzero((slopes > 0) & (cared > 0))
    if rows.size == 0:
        return out
    s, theta, base = care[rows], slopes[rows], least[rows]
    gap = hidden[None, :] - base[:, None]  # v_j − v_min ≥ 0 wherever s_ij > 0
    gap = np.where(s > 0, gap, 1.0)
    low = np.where(gap == 0, s, 0.0).sum(axis=1) / theta
    high = cared[rows] / theta
    x = _newton(s, gap, theta, low, high)
    out[rows] = x - base
    return out


def _newton(care: Matrix, gap: Matrix, slope: Vector, low: Vector, high: Vector) -> Vector:
    """Root x of Σ_j s_j/(x + gap_j) = θ in [low, high], for all rows at once."""
    x = low.copy()
    for _ in range(_ROOT_STEPS):
        part = 1.0 / (x[:, None] + gap)
        value = np.sum(care * part, axis=1)
        low, high = np.where(value > slope, x, low), np.where(value > slope, high, x)
        fall = np.sum(care * part**2, axis=1)
        trial = x + value * (value - slope) / (slope * fall)  # Newton on 1/f(x) − 1/θ
        trial = np.where((trial >= low) & (trial <= high), trial, 0.5 * (low + high))
        if np.all(np.abs(trial - x) <= 4e-15 * x):
            return trial
        x = trial
    return x


def best_response(survey: Survey, ideal: float, others: float) -> float:
    """q_i = clip(φ_i − Σ_{j≠i} q_j, q_lo, q_hi), a variance."""
    return float(np.clip(ideal - others, survey.variance_low, survey.variance_high))


def equilibrium(survey: Survey, ideals: Vector) -> SurveyEquilibrium:
    """Return the users' equilibrium for given φ.

        Λ* = max(n q_lo, max_h min(φ_(h), n q_lo + h(q_hi − q_lo))),  φ sorted decreasingly.

    Users with φ_i above Λ* are at q_hi, below at q_lo; ties at Λ* share the remainder equally (only their sum is
    determined).
    """
    n, low, high = survey.users, survey.variance_low, survey.variance_high
    ordered = np.sort(ideals)[::-1]
    reach = n * low + np.arange(1, n + 1) * (high - low)
    total = max(n * low, float(np.max(np.minimum(ordered, reach))))
    variances = np.where(ideals > total, high, low)
    tied = ideals == total
    if tied.any():
        variances[tied] = (total - variances[~tied].sum()) / tied.sum()
        variances[tied] = np.clip(variances[tied], low, high)
    return SurveyEquilibrium(variances, total, int(tied.sum()) <= 1)


def utilities(survey: Survey, base: float | Vector, slopes: Vector, variances: Vector) -> Vector:
    """U_i = r − θ_i q_i − c_i(Λ) ([CAPP] eq. 10)."""
    return np.asarray(base - slopes * variances - privacy_cost(survey, float(variances.sum())))


def accuracy(total: float, error: float) -> float:
    """max(0, 1 − Λ/ε²): Chebyshev's certificate that the sum is off by less than `error` ([CAPP] eq. 11)."""
    if not error > 0:
        raise InvalidSurvey(f"error must be positive, got {error}")
    return max(0.0, 1.0 - total / error**2)

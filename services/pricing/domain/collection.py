"""The prices that make a sum of correlated users' answers as accurate as the platform's budget allows.

[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection, section III.B.

Adding all U_i ≥ 0 to the budget leaves h(Λ) = B − Σ_i c_i(Λ) ≥ 0, free of the prices and increasing in Λ, so the least
total variance is one scalar root; a second equation then finds prices whose equilibrium it is, with every U_i = 0.

Unlike [CAPP] problem P2 (every user strictly inside, one common base), which asks negative variances of 6 to 30 users
in every setting of the paper, the default "pivot" prices put one user inside and the others at a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import scipy  # loads its submodules on first use

from services.pricing.domain.complementarity import Mask
from services.pricing.domain.correlated_users import Survey, marginal, privacy_cost
from services.pricing.domain.influence import Vector

Prices: TypeAlias = Literal["pivot", "even", "personal"]

_HAIR = 1e-9
_LARGEST = 1e300  # stands for infinity where an unbounded variance must be a number


@dataclass(frozen=True, slots=True, eq=False)
class Tariff:
    """Prices and the variances at their equilibrium.

    Attributes
    ----------
    base : r, one number, or one per user for "personal" prices.
    slopes : θ, what a unit of variance costs each user.
    variances : q at the equilibrium.
    """

    base: float | Vector
    slopes: Vector
    variances: Vector

    @property
    def payments(self) -> Vector:
        """p_i = r − θ_i q_i."""
        return np.asarray(self.base - self.slopes * self.variances)


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """The accuracy that a budget buys, and the prices.

    Attributes
    ----------
    status : "tight" (all of B is spent and every U_i = 0), "saturated" (every user at q_lo, money left), "infeasible"
        (B buys not even the noisiest answer), "no positive prices".
    total : Λ, nan when infeasible.
    tariff : None when infeasible or when no positive prices exist.
    least_budget : the smallest B that is feasible at all.
    """

    status: str
    total: float
    tariff: Tariff | None
    least_budget: float


def required(survey: Survey, total: float) -> Vector:
    """The least payment to each user, c_i(Λ); 0 for a user whose own and cared-for privacy nothing can reveal."""
    cost = privacy_cost(survey, total)
    return np.where(np.isneginf(cost), 0.0, cost)


def collect(survey: Survey, budget: float, prices: Prices = "pivot", *, positive: bool = True) -> Collection:
    """Return the most accurate collection for `budget`. `positive` requires θ_i > 0 of common prices."""

    def surplus(total: float) -> float:
        return budget - float(required(survey, total).sum())

    n = survey.users
    lowest, highest = n * survey.variance_low, min(n * survey.variance_high, _LARGEST)
    least = float(required(survey, highest).sum())
    if surplus(lowest) >= 0:
        return Collection("saturated", lowest, _saturated(survey, prices), least)
    if budget < least:
        return Collection("infeasible", math.nan, None, least)
    total = _root(surplus, lowest, highest)
    if math.isinf(survey.variance_high):  # no user's variance exceeds the total, so that bound changes nothing
        survey = replace(survey, variance_high=total)
    tariff = _TARIFFS[prices](survey, total, positive)
    return Collection("tight" if tariff is not None else "no positive prices", total, tariff, least)


def _root(surplus: Callable[[float], float], lowest: float, highest: float) -> float:
    low, high = lowest, 2.0 * lowest
    while high < highest and surplus(high) < 0:
        low, high = high, 2.0 * high
    high = min(high, highest)
    if surplus(high) <= 0:  # the budget is exactly the least feasible one
        return high
    return float(scipy.optimize.brentq(surplus, low, high, xtol=1e-300, rtol=8.9e-16, maxiter=500))


def _saturated(survey: Survey, prices: Prices) -> Tariff:
    """All users at q_lo, each paid its cost; a slightly raised base makes the equilibrium of pivot prices strict."""
    low = survey.variance_low
    total = survey.users * low
    cost, f = required(survey, total), marginal(survey, total)
    variances = np.full(survey.users, low)
    if prices == "personal":
        return Tariff(cost + f * low, f, variances)
    base = float(np.max(cost + f * low))
    if prices == "pivot":
        base += _HAIR * max(1.0, abs(base))
    return Tariff(base, (base - cost) / low, variances)


def _personal(survey: Survey, total: float, positive: bool) -> Tariff | None:
    """θ_i = f_i, r_i = c_i + f_i q_i, q_i = Λ/n: always feasible, one base per user ([CAPP] eq. 21 read this way)."""
    cost, f = required(survey, total), marginal(survey, total)
    variances = np.full(survey.users, total / survey.users)
    return Tariff(cost + f * variances, f, variances)


def _pivot(survey: Survey, total: float, positive: bool) -> Tariff | None:
    """One user k inside with r = c_k + f_k q_k, `tops` users at q_hi, the rest at q_lo; dearest pivots first."""
    n, low, high = survey.users, survey.variance_low, survey.variance_high
    cost, f = required(survey, total), marginal(survey, total)
    tops = min(n - 1, math.floor((total - n * low) / (high - low)))
    inside = float(np.clip(total - tops * high - (n - 1 - tops) * low if tops else total - (n - 1) * low, low, high))
    dear = cost + f * inside
    for k in np.argsort(-dear, kind="stable"):
        if f[k] <= 0:
            continue
        base = float(dear[k])
        must = base < cost + f * low
        may = base <= cost + f * high if tops else must.copy()
        if positive:
            if (must & (base <= cost)).any():
                continue
            may &= base > cost
        must[k] = may[k] = False
        if not must.sum() <= tops <= (must | may).sum():
            continue
        top = _fill(must, may, dear, tops)
        variances = np.where(top, high, low)
        variances[k] = inside
        slopes = (base - cost) / variances
        slopes[k] = f[k]
        if positive and (slopes <= 0).any():
            continue
        return Tariff(base, slopes, variances)
    return None


def _fill(must: Mask, may: Mask, dear: Vector, tops: int) -> Mask:
    """The users at q_hi: all that must be, then the dearest of those that may be."""
    top = must.copy()
    extra = np.flatnonzero(may & ~must)
    top[extra[np.argsort(-dear[extra], kind="stable")][: tops - int(must.sum())]] = True
    return top


def _even(survey: Survey, total: float, positive: bool) -> Tariff | None:
    """As many users inside as possible: in order of c_i + f_i Λ/n, cheap ones at q_lo, then inside, dear ones at q_hi.

    For each window of the order the base follows from the total; windows grow one by one with running extremes, at
    O(n²) for all of them. Users who care for no other user have no inside and stay at q_lo.
    """
    low, high, n = survey.variance_low, survey.variance_high, survey.users
    cost, f = required(survey, total), marginal(survey, total)
    caring = np.flatnonzero(f > 0)
    order = caring[np.argsort(cost[caring] + f[caring] * total / n, kind="stable")]
    idle_floor = float(np.max(cost[f <= 0], initial=-math.inf))
    window = _widest(
        cost[order],
        f[order],
        total=total - (n - order.size) * low,
        low=low,
        high=high,
        idle_floor=idle_floor,
        positive=positive,
    )
    if window is None:
        return None
    start, stop, base = window
    variances = np.full(n, low)
    variances[order[stop:]] = high
    middle = order[start:stop]
    variances[middle] = (base - cost[middle]) / f[middle]
    slopes = (base - cost) / variances
    slopes[middle] = f[middle]
    return Tariff(base, slopes, variances)


def _widest(
    cost: Vector, f: Vector, total: float, low: float, high: float, idle_floor: float, positive: bool
) -> tuple[int, int, float] | None:
    """(start, stop, base) of the widest feasible window of the ordered users, or None."""
    m = cost.size
    at_low, at_high = cost + f * low, cost + f * high
    sums = np.concatenate([[0.0], np.cumsum(cost / f)]), np.concatenate([[0.0], np.cumsum(1.0 / f)])
    floor_before = np.maximum.accumulate(np.concatenate([[idle_floor], at_low]))  # users below the window, at q_lo
    cap_after = np.minimum.accumulate(np.concatenate([[math.inf], at_high[::-1]]))[::-1]  # above it, at q_hi
    cost_after = np.maximum.accumulate(np.concatenate([[-math.inf], cost[::-1]]))[::-1]
    result = None
    inside_floor, inside_cap = np.full(m + 1, -math.inf), np.full(m + 1, math.inf)
    for width in range(1, m + 1):
        start = np.arange(m - width + 1)
        stop = start + width
        inside_floor = np.maximum(inside_floor[: start.size], at_low[stop - 1])
        inside_cap = np.minimum(inside_cap[: start.size], at_high[stop - 1])
        tops = np.where(m - stop > 0, (m - stop) * high, 0.0)
        base = (total - start * low - tops + sums[0][stop] - sums[0][start]) / (sums[1][stop] - sums[1][start])
        slack = 1e-12 * np.maximum(1.0, np.abs(base))
        fits = (base >= np.maximum(inside_floor, floor_before[start]) - slack) & (
            base <= np.minimum(inside_cap, cap_after[stop]) + slack
        )
        if positive:
            fits &= base > np.maximum(cost_after[stop], idle_floor)
        if fits.any():
            best = int(np.argmax(fits))
            result = (int(start[best]), int(stop[best]), float(base[best]))
    return result


_TARIFFS: dict[Prices, Callable[[Survey, float, bool], Tariff | None]] = {
    "pivot": _pivot,
    "even": _even,
    "personal": _personal,
}

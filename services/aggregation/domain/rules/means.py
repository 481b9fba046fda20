"""Means and medians: the mean, and three rules that look at one coordinate at a time.

D. Yin, Y. Chen, K. Ramchandran, P. Bartlett, "Byzantine-robust distributed learning: towards optimal statistical
rates", ICML 2018 (median, trimmed mean); C. Xie, O. Koyejo, I. Gupta, "Generalized Byzantine-tolerant SGD", 2018
(mean around median). With weights, every mean and median is weighted; how many are left out is still a count of heads.

Rows come sorted by weight (`rows.canonical_order`) and sorting is stable, so equal values are taken lighter first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.aggregation.domain.rules.geometry import Cloud
from services.aggregation.domain.rules.rows import Matrix, Vector
from services.aggregation.domain.rules.verdict import Mixture

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Mean:
    """Σ weight·update / Σ weight."""

    def origin(self, elements: int) -> None:
        """None: see `Linear`."""

    def judge(self, cloud: Cloud) -> Mixture:
        """All updates count."""
        return Mixture(cloud.weights)


@dataclass(frozen=True, slots=True)
class Median:
    """The middle value of each coordinate; between the two middle ones halfway."""

    why: str = "in the middle of no coordinate"

    def combine(self, values: Matrix, weights: Vector | None) -> tuple[Vector, Flags]:
        """See `Coordinatewise`."""
        low, high = _middles(values, weights)
        return (low + high) / 2, _are_between(values, low, high, inner=False)


@dataclass(frozen=True, slots=True)
class TrimmedMean:
    """The mean of each coordinate without its `f` lowest and `f` highest values."""

    f: int

    @property
    def why(self) -> str:
        return f"among the {self.f} lowest or highest of every coordinate"

    def combine(self, values: Matrix, weights: Vector | None) -> tuple[Vector, Flags]:
        """See `Coordinatewise`."""
        first, last = self.f, len(values) - self.f
        if weights is None:
            # Sorted and not only parted: the order of a sum's terms is then the same on every processor.
            retained = np.sort(values, axis=0)[first:last]
            return retained.mean(axis=0), _are_between(values, retained[0], retained[-1])
        order = np.argsort(values, axis=0, kind="stable")[first:last]
        retained, heavy = np.take_along_axis(values, order, axis=0), weights[order]
        return _weighted(retained, heavy), _are_between(values, retained[0], retained[-1])


@dataclass(frozen=True, slots=True)
class TrimmedShare:
    """The mean of each coordinate without the lowest and the highest values that hold `share` of all weight each.

    A value on the edge counts with the part of its weight that lies inside. Without weights, share = f/n is `f`
    devices. Unlike leaving out heads, many devices of little weight push no other device out.
    """

    share: float

    @property
    def why(self) -> str:
        return f"among the {self.share:.0%} of weight at the ends of every coordinate"

    def combine(self, values: Matrix, weights: Vector | None) -> tuple[Vector, Flags]:
        """See `Coordinatewise`."""
        item = np.ones(len(values)) if weights is None else weights
        order = np.argsort(values, axis=0, kind="stable")
        ordered, heavy = np.take_along_axis(values, order, axis=0), item[order]
        reached = np.cumsum(heavy, axis=0)
        cut = self.share * reached[-1]
        retained = np.minimum(reached, reached[-1] - cut) - np.maximum(reached - heavy, cut)
        # Rounding of the sums must not bring back what was cut.
        retained = np.where(retained > 1e-12 * reached[-1], retained, 0.0)
        counted = np.zeros(values.shape, np.bool_)
        np.put_along_axis(counted, order, retained > 0, axis=0)
        return _weighted(ordered, retained), np.asarray(counted.any(axis=1), np.bool_)


@dataclass(frozen=True, slots=True)
class MeanAroundMedian:
    """The mean of each coordinate's n − f values nearest to its median; of two equally near ones the lower."""

    f: int
    why: str = "too far from the median of every coordinate"

    def combine(self, values: Matrix, weights: Vector | None) -> tuple[Vector, Flags]:
        """See `Coordinatewise`."""
        retained = len(values) - self.f
        order = None if weights is None else np.argsort(values, axis=0, kind="stable")
        ordered = np.sort(values, axis=0) if order is None else np.take_along_axis(values, order, axis=0)
        low, high = _middles_of_sorted(ordered) if weights is None else _middles(values, weights)
        median = (low + high) / 2
        # The nearest values are a run of the sorted ones. It starts as far up as the value it would gain at its upper
        # end is nearer than the one it would lose; the further up, the less that is so.
        start = np.sum(ordered[retained:] - median < median - ordered[: self.f], axis=0)
        run = start + np.arange(retained)[:, None]
        chosen = np.take_along_axis(ordered, run, axis=0)
        if weights is None or order is None:
            mean = chosen.mean(axis=0)
        else:
            mean = _weighted(chosen, weights[np.take_along_axis(order, run, axis=0)])
        return mean, _are_between(values, chosen[0], chosen[-1])


def _middles(values: Matrix, weights: Vector | None) -> tuple[Vector, Vector]:
    """The lowest and the highest value that have at most half of all weight below and at most half above them."""
    if weights is None:
        return _middles_of_sorted(np.sort(values, axis=0))
    # Whole units, so that half of all weight is met exactly where it should be.
    _, exponent = np.frexp(weights.max())
    units = np.maximum(np.rint(np.ldexp(weights, 40 - exponent)).astype(np.int64), 1)
    order = np.argsort(values, axis=0, kind="stable")
    twice_reached = 2 * np.cumsum(units[order], axis=0)
    total = units.sum()
    places = [np.argmax(twice_reached >= total, axis=0), np.argmax(twice_reached > total, axis=0)]
    low, high = (np.take_along_axis(values, np.take_along_axis(order, p[None], 0), 0)[0] for p in places)
    return low, high


def _middles_of_sorted(ordered: Matrix) -> tuple[Vector, Vector]:
    n = len(ordered)
    return ordered[(n - 1) // 2], ordered[n // 2]


def _weighted(values: Matrix, weights: Matrix) -> Vector:
    mean: Vector = (values * weights).sum(axis=0) / weights.sum(axis=0)
    return mean


def _are_between(values: Matrix, low: Vector, high: Vector, *, inner: bool = True) -> Flags:
    """Rows with a value from `low` to `high`, or with `inner` false equal to one of them, in some column."""
    hits = (values >= low) & (values <= high) if inner else (values == low) | (values == high)
    return np.asarray(hits.any(axis=1), np.bool_)

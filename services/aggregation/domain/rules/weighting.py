"""How much each device's update may weigh: its weight, at most the trust the others give it.

A device earns its weight: claiming many samples, or joining under many names, gives no more than the others' trust in
each of those names. A device without any trust has weight 0 and is excluded before any rule counts devices.

Many names can also trust each other. What helps against that are a few devices the publisher knows: trust then counts
as far as it reaches from them. Q. Cao, M. Sirivianos, X. Yang, T. Pregueiro, "Aiding the detection of fake accounts in
large scale social online services" (SybilRank), NSDI 2012: a short random walk from known honest nodes, its landing
probability divided by degree. Few ties join honest devices with made-up ones, so little of the walk crosses over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import scipy  # loads its submodules on first use

from services.aggregation.domain.rules.rows import Vector
from services.aggregation.errors import BadWeights

HEAVIEST = 1e150
"""Weights beyond this cannot be added up for as many devices as there may be, and squared."""


class Ties(Protocol):
    """Pairs of devices with trust in each other, each once, by position."""

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Position of the first device of each pair."""

    @property
    def columns(self) -> npt.NDArray[np.int64]:
        """Position of the second."""

    @property
    def trust(self) -> Vector:
        """Trust of each pair, from 0 to 1."""


def effective(count: int, weights: Sequence[float] | None, trust: Sequence[float] | None) -> Vector:
    """Weights of `count` devices: 1 where none are given, bounded by trust where that is given.

    Weights are from 0 to HEAVIEST, trust is from 0 to 1; at least one device must end with a weight above 0.
    """
    result = np.ones(count)
    if weights is not None:
        _check("weights", weights, count, HEAVIEST)
        result = np.asarray(weights, np.float64).copy()
    if trust is not None:
        _check("trust", trust, count, 1.0)
        result = np.minimum(result, np.asarray(trust, np.float64))
    if not (result > 0).any():
        place = "weights" if trust is None else "trust"
        raise BadWeights(f"{place}: no device has a weight above 0; give at least one device weight and trust")
    return result


def trust_weights(size: int, ties: Ties, known: Sequence[int] = ()) -> Vector:
    """Return the largest weight of each of `size` devices, from 0 to 1, by their trust in each other.

    With `known` devices: the probability that a short walk along trust from these ends at a device, divided by its
    degree, as a share of the usual value where the walk goes; known devices have weight 1.
    Without: the mean of the others' trust in it.
    """
    if size == 1:
        return np.ones(1)
    half = scipy.sparse.coo_array((ties.trust, (ties.rows, ties.columns)), shape=(size, size))
    trust = (half + half.T).tocsr()
    degree: Vector = np.asarray(trust.sum(axis=0), np.float64).ravel()
    if not known:
        return np.minimum(degree / (size - 1), 1.0)
    spread = np.zeros(size)
    spread[list(known)] = 1.0 / len(known)
    outwards = scipy.sparse.diags_array(np.divide(1.0, degree, out=np.zeros(size), where=degree > 0)) @ trust
    for _ in range(max(1, math.ceil(math.log2(size)))):
        spread = np.asarray(spread @ outwards)
    rank = np.divide(spread, degree, out=np.zeros(size), where=degree > 0)
    result = np.minimum(rank / _usual(rank, spread), 1.0) if spread.any() else np.zeros(size)
    result[list(known)] = 1.0
    return result


def _usual(rank: Vector, spread: Vector) -> float:
    """The median rank of where the walk is: half of it is at devices of at least this rank."""
    order = np.argsort(rank, kind="stable")
    reached = np.cumsum(spread[order])
    return float(rank[order[np.argmax(reached >= reached[-1] / 2)]])


def relative(weights: Sequence[float]) -> list[float]:
    """Weights as shares of the heaviest, so that trust, which is at most 1, can bound them."""
    most = max(weights)
    return [weight / most for weight in weights] if most > 0 else [1.0] * len(weights)


def why_weightless(device: int, trust: Sequence[float] | None) -> str:
    """Return why a device of weight 0 is excluded."""
    return "the others give it no trust" if trust is not None and trust[device] == 0 else "its weight is 0"


def _check(name: str, values: Sequence[float], count: int, most: float) -> None:
    if len(values) != count:
        raise BadWeights(f"{name}: {len(values)} numbers for {count} updates; give one per device")
    for device, value in enumerate(values):
        if not 0 <= value <= most:
            raise BadWeights(f"{name}.{device}: must be from 0 to {most:g}, not {value}")

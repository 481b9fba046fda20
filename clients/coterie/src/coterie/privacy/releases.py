"""The kinds of release: each knows its cost and how to draw its noise.

Noise is drawn on a grid by the exact samplers (`grid`), from a cryptographic stream. A release is clipped, charged and
noised in one place, `RoundContext.release`; nothing else adds noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.accounting import Adjacency, Charge, gaussian_charge, laplace_charge, priced_charge, raw_charge
from coterie.privacy.grid import laplaced, noised_and_counted, noised_query, noised_share, noised_tensors
from coterie.privacy.stream import Stream

Arrays: TypeAlias = dict[str, NDArray[np.floating[Any]]]
Queried: TypeAlias = Callable[[NDArray[np.float64], float, float], NDArray[np.float64]]
"""Adds noise to a query's answer, given the answer, its L2 sensitivity and the noise multiplier."""

COUNT = "coterie: share within the clip norm"
"""Name of the noised bit in a release; no tensor of a model has this name."""
_ROUNDED = 1.0 + 2.0**-12
"""Factor on the sensitivity of a sum of clipped gradients that covers its single-precision rounding."""


class Release(Protocol):
    """Data that may leave a device."""

    def charge(self, task: str, round: int, purpose: str) -> Charge:
        """Make the charge under this name."""
        ...

    def tensors(self, stream: Stream) -> Arrays:
        """Draw noise and return the noised tensors."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A model's whole change, clipped to `clip_norm`, with Gaussian noise of deviation multiplier · clip_norm.

    It hides the device: leaving it out moves the contribution by at most clip_norm, replacing it by twice that, so the
    same noise costs four times the ρ.
    """

    change: Mapping[str, NDArray[np.floating[Any]]]
    clip_norm: float
    multiplier: float
    adjacency: Adjacency = "left-out"

    def charge(self, task: str, round: int, purpose: str) -> Charge:
        """Gaussian, device level."""
        sensitivity = 2.0 if self.adjacency == "replaced" else 1.0
        multiplier = self.multiplier / sensitivity
        return gaussian_charge(task, round, purpose, "device", multiplier, adjacency=self.adjacency)

    def tensors(self, stream: Stream) -> Arrays:
        """Each tensor in its own type."""
        return noised_tensors(self.change, self.clip_norm, self.multiplier, stream)


@dataclass(frozen=True, slots=True, eq=False)
class CountedChange:
    """A `Change` and the bit whether it was within the clip norm, as one vector and one release (`adaptive`)."""

    change: Mapping[str, NDArray[np.floating[Any]]]
    clip_norm: float
    multiplier: float

    def charge(self, task: str, round: int, purpose: str) -> Charge:
        """Gaussian, device level, left out: update and bit share one norm."""
        return gaussian_charge(task, round, purpose, "device", self.multiplier)

    def tensors(self, stream: Stream) -> Arrays:
        """Each tensor in its own type; the noised bit under `COUNT`."""
        flat = np.concatenate([np.ravel(value).astype(np.float64) for value in self.change.values()])
        noised, within = noised_and_counted(flat, self.clip_norm, self.multiplier, stream)
        parts = np.split(noised, np.cumsum([value.size for value in self.change.values()])[:-1])
        tensors: Arrays = {
            name: part.reshape(value.shape).astype(value.dtype)
            for (name, value), part in zip(self.change.items(), parts, strict=True)
        }
        return tensors | {COUNT: np.array([within])}


@dataclass(frozen=True, slots=True, eq=False)
class Raw:
    """Unchanged tensors for a recipient that the owner trusts."""

    values: Mapping[str, NDArray[np.floating[Any]]]

    def charge(self, task: str, round: int, purpose: str) -> Charge:
        """No ε describes it."""
        return raw_charge(task, round, purpose)

    def tensors(self, stream: Stream) -> Arrays:
        """Unchanged."""
        return dict(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class Unproven:
    """A vector under a name with Laplace noise that proves nothing, hence charged as raw; scale 0 adds none."""

    name: str
    vector: NDArray[np.float64]
    scale: float

    def charge(self, task: str, round: int, purpose: str) -> Charge:
        """No ε describes it."""
        return raw_charge(task, round, purpose)

    def tensors(self, stream: Stream) -> Arrays:
        """In single precision."""
        drawn = laplaced(self.vector, self.scale, 1.0, stream) if self.scale > 0.0 else self.vector
        return {self.name: drawn.astype(np.float32)}


@dataclass(frozen=True, slots=True, eq=False)
class Descent:
    """The result of training with noise in every step: `run` noises its sums and spends ρ over all steps.

    Its sums are of clipped gradients over a known number of examples, one of which is replaced.
    """

    rho: float
    run: Callable[[Queried], Arrays]

    def charge(self, task: str, round: int, purpose: str) -> Charge:
        """Gaussian, by its ρ."""
        return priced_charge(task, round, purpose, self.rho)

    def tensors(self, stream: Stream) -> Arrays:
        """Train with noise."""
        return self.run(
            lambda answer, sensitivity, multiplier: noised_query(answer, sensitivity * _ROUNDED, multiplier, stream)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """One number in [0, 1] under a name, with Gaussian noise; any other answer moves it by 1 at most."""

    name: str
    share: float
    variance: float

    def charge(self, task: str, round: int, purpose: str) -> Charge:
        """Gaussian, device level: the device releases nothing but the answer."""
        return gaussian_charge(task, round, purpose, "device", math.sqrt(self.variance), adjacency="replaced")

    def tensors(self, stream: Stream) -> Arrays:
        """One float64."""
        return {self.name: np.array([noised_share(self.share, self.variance, stream)])}


@dataclass(frozen=True, slots=True, eq=False)
class Laplaced:
    """A vector under a name with Laplace noise; replacing an example moves it by `sensitivity` in L1 at most."""

    name: str
    vector: NDArray[np.float64]
    sensitivity: float
    epsilon: float

    def charge(self, task: str, round: int, purpose: str) -> Charge:
        """Pure ε, example level."""
        return laplace_charge(task, round, purpose, "example", self.epsilon)

    def tensors(self, stream: Stream) -> Arrays:
        """In single precision."""
        return {self.name: laplaced(self.vector, self.sensitivity, self.epsilon, stream).astype(np.float32)}

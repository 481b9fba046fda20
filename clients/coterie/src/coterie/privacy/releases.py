"""The ways in which something may leave a device: each knows what it costs and how its noise is made.

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
"""A query's answer with noise: given the answer, its L2 sensitivity and the noise multiplier."""

COUNT = "coterie: share within the clip norm"
"""Name of the noised bit in a release, which no model's tensor has."""
_ROUNDED = 1.0 + 2.0**-12
"""What a sum of clipped gradients may move by beyond its sensitivity, because it is computed in single precision."""


class Release(Protocol):
    """Something that may leave a device."""

    def charge(self, task: str, round: int, purpose: str) -> Charge:
        """What it costs under this name."""
        ...

    def tensors(self, stream: Stream) -> Arrays:
        """What leaves, with noise drawn now."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A model's whole change, clipped to `clip_norm`, with Gaussian noise of deviation multiplier · clip_norm.

    It hides the device: left out, its contribution moves by at most clip_norm; replaced, by twice that, so the same
    noise costs four times the ρ.
    """

    change: Mapping[str, NDArray[np.floating[Any]]]
    clip_norm: float
    multiplier: float
    adjacency: Adjacency = "left-out"

    def charge(self, task: str, round: int, purpose: str) -> Charge:
        """Gaussian, device level."""
        sensitivity = 2.0 if self.adjacency == "replaced" else 1.0
        return gaussian_charge(task, round, purpose, "device", self.multiplier / sensitivity, self.adjacency)

    def tensors(self, stream: Stream) -> Arrays:
        """Each tensor in its own type."""
        return noised_tensors(self.change, self.clip_norm, self.multiplier, stream)


@dataclass(frozen=True, slots=True, eq=False)
class CountedChange:
    """A `Change` with one bit beside it, whether it was within the clip norm: one vector, one release (`adaptive`)."""

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
        told: Arrays = {
            name: part.reshape(value.shape).astype(value.dtype)
            for (name, value), part in zip(self.change.items(), parts, strict=True)
        }
        return told | {COUNT: np.array([within])}


@dataclass(frozen=True, slots=True, eq=False)
class Raw:
    """Tensors as they are, to somebody the owner trusts."""

    values: Mapping[str, NDArray[np.floating[Any]]]

    def charge(self, task: str, round: int, purpose: str) -> Charge:
        """No ε describes it."""
        return raw_charge(task, round, purpose)

    def tensors(self, stream: Stream) -> Arrays:
        """Unchanged."""
        return dict(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class Unproven:
    """A vector under a name with Laplace noise of a scale that proves nothing, hence charged as raw; 0 is no noise."""

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
    """What training with noise in every step makes: `run` is given a way to noise its sums, and spends ρ in all steps.

    Sums of clipped gradients over a known number of examples, one of which is replaced.
    """

    rho: float
    run: Callable[[Queried], Arrays]

    def charge(self, task: str, round: int, purpose: str) -> Charge:
        """Gaussian, by its ρ."""
        return priced_charge(task, round, purpose, self.rho)

    def tensors(self, stream: Stream) -> Arrays:
        """The descent."""
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
        """Gaussian, device level: the answer is all the device gives."""
        return gaussian_charge(task, round, purpose, "device", math.sqrt(self.variance), "replaced")

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
        return laplace_charge(task, round, purpose, "example", self.epsilon, "replaced")

    def tensors(self, stream: Stream) -> Arrays:
        """In single precision."""
        return {self.name: laplaced(self.vector, self.sensitivity, self.epsilon, stream).astype(np.float32)}

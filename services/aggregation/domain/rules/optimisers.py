"""Server optimisers: how the model x moves along a round's mean change Δ.

T.-M. H. Hsu, H. Qi, M. Brown, "Measuring the effects of non-identical data distribution for federated visual
classification", 2019 (FedAvgM); S. J. Reddi and others, "Adaptive federated optimization", ICLR 2021, Algorithm 2
(FedAdagrad, FedYogi, FedAdam): no bias correction, v starts at τ².

Every formula is element by element, so a model is stepped a chunk at a time and the bits do not depend on the chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from services.aggregation.domain.rules.rows import Vector

State = Mapping[str, Vector]
"""The optimiser's memory: vectors as long as the model, by name."""


class Optimiser(Protocol):
    """A step of the model, and what must be remembered for the next.

    The state after a step follows from the state before and the change; the model after it from the model before and
    the state after.
    """

    @property
    def memory(self) -> Mapping[str, float]:
        """Names of the state's vectors, and what each holds everywhere at first."""

    def remember(self, state: State, change: Vector) -> State:
        """The state after the step."""

    def advance(self, model: Vector, state: State) -> Vector:
        """The model after the step, from the state after it."""


def first_state(optimiser: Optimiser, elements: int) -> State:
    """The state before the first step."""
    return {name: np.full(elements, value) for name, value in optimiser.memory.items()}


@dataclass(frozen=True, slots=True)
class Momentum:
    """FedAvgM: m ← β·m + Δ, x ← x + η·m."""

    learning_rate: float
    momentum: float

    @property
    def memory(self) -> Mapping[str, float]:
        return {"m": 0.0}

    def remember(self, state: State, change: Vector) -> State:
        """See `Optimiser`."""
        return {"m": self.momentum * state["m"] + change}

    def advance(self, model: Vector, state: State) -> Vector:
        """See `Optimiser`."""
        return model + self.learning_rate * state["m"]


@dataclass(frozen=True, slots=True)
class Adaptive:
    """FedAdam, FedYogi, FedAdagrad: m ← β₁·m + (1 − β₁)·Δ, v by kind, x ← x + η·m / (√v + τ)."""

    kind: str
    learning_rate: float
    beta1: float
    beta2: float
    tau: float

    @property
    def memory(self) -> Mapping[str, float]:
        return {"m": 0.0, "v": self.tau**2}

    def remember(self, state: State, change: Vector) -> State:
        """See `Optimiser`."""
        m = self.beta1 * state["m"] + (1 - self.beta1) * change
        return {"m": m, "v": self._second(state["v"], change * change)}

    def advance(self, model: Vector, state: State) -> Vector:
        """See `Optimiser`."""
        return model + self.learning_rate * state["m"] / (np.sqrt(state["v"]) + self.tau)

    def _second(self, v: Vector, square: Vector) -> Vector:
        if self.kind == "fedadam":
            return self.beta2 * v + (1 - self.beta2) * square
        if self.kind == "fedyogi":
            return v - (1 - self.beta2) * square * np.sign(v - square)
        return v + square

"""Training on a sold privacy budget: noised full-batch steps, and how far an honest device gets with them.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coterie.privacy.zcdp import variance_of_rho

CHANCE_OF_INJUSTICE = 1e-9
"""Chance with which an honest update is beyond `LocalSteps.largest_change`."""
_ROUNDING = 1e-3


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """How a device trains on the budget it sold: full-batch gradient steps, each with its share of the noise.

    Device and platform read it from the task's training object, so that the platform knows what an honest update can
    look like.

    Attributes:
        steps: gradient steps per round, T.
        learning_rate: η.
        clip_norm: bound S on the L2 norm of every example's gradient.
        least_budget: the smallest budget taken; below it an update is hardly more than noise.
    """

    steps: int = 1
    learning_rate: float = 0.5
    clip_norm: float = 1.0
    least_budget: float = 0.01

    def __post_init__(self) -> None:
        if not (isinstance(self.steps, int) and 1 <= self.steps <= 10_000):
            raise ValueError(f"steps must be a whole number from 1 to 10000, got {self.steps}")
        for name in ("learning_rate", "clip_norm", "least_budget"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive finite number, got {value}")

    @classmethod
    def of(cls, training: Mapping[str, Any]) -> LocalSteps:
        """From a task's training object; other keys are left alone."""
        return cls(**{name: training[name] for name in cls.__slots__ if name in training})

    def noise_variance(self, budget: float, samples: int) -> float:
        """δ² = 2S²/(D²·ρ/T) of the noise on each step's mean gradient: T steps of ρ/T spend ρ together."""
        return variance_of_rho(budget / self.steps, self.clip_norm, samples)

    def largest_change(self, budget: float, samples: int, elements: int) -> float:
        """L2 norm that an honest change of `elements` numbers exceeds with chance `CHANCE_OF_INJUSTICE` at most.

        Each step moves the model by η(g + z) with |g| ≤ S; the T noises add up to N(0, Tδ²I), whose norm exceeds
        √T·δ(√d + t) with chance exp(−t²/2) at most.
        """
        tail = math.sqrt(elements) + math.sqrt(2.0 * math.log(1.0 / CHANCE_OF_INJUSTICE))
        noise = math.sqrt(self.steps * self.noise_variance(budget, samples)) * tail
        return self.learning_rate * (self.steps * self.clip_norm + noise) * (1.0 + _ROUNDING)

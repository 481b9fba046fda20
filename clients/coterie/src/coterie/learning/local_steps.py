"""Training on a sold privacy budget: noised steps over all samples, and how far an honest device gets with them.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.zcdp import variance_of_rho

CHANCE_OF_INJUSTICE = 1e-9
"""Chance with which an honest update is beyond `LocalSteps.largest_change`."""
_ROUNDING = 1e-3


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """How a device trains on the budget it sold: passes over all its samples, each with its share of the budget.

    A pass is one full-batch gradient step, or one for each of `batches` disjoint mini-batches. Replacing an example
    changes one batch of a pass, so that a pass costs what a single noised sum of it costs: no sampling is claimed, and
    it does not matter who knows the batches.

    Device and platform read it from the task's training object, so that the platform knows what an honest update can
    look like.

    Attributes:
        steps: passes per round, T: the local epochs.
        batches: mini-batches a pass is made in; all the samples together by default. The task
            sets their number, not their size: a device that claims more samples gets no further.
        learning_rate: η.
        clip_norm: bound S on the L2 norm of every example's gradient.
        least_budget: the smallest budget taken; below it an update is hardly more than noise.
    """

    steps: int = 1
    learning_rate: float = 0.5
    clip_norm: float = 1.0
    least_budget: float = 0.01
    batches: int = 1

    def __post_init__(self) -> None:
        if not (isinstance(self.steps, int) and 1 <= self.steps <= 10_000):
            raise ValueError(f"steps must be a whole number from 1 to 10000, got {self.steps}")
        if not (isinstance(self.batches, int) and 1 <= self.batches <= 1_000):
            raise ValueError(f"batches must be a whole number from 1 to 1000, got {self.batches}")
        for name in ("learning_rate", "clip_norm", "least_budget"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive finite number, got {value}")

    @classmethod
    def of(cls, training: Mapping[str, Any]) -> LocalSteps:
        """From a task's training object; other keys are left alone."""
        return cls(**{name: training[name] for name in cls.__slots__ if name in training})

    def parts(self, samples: int) -> int:
        """Return the number of mini-batches of this many samples."""
        return max(1, min(self.batches, samples))

    def order(self, samples: int, seed: int) -> Iterator[NDArray[np.int64]]:
        """Indices of each step's mini-batch, pass after pass; every sample is in one of them in each pass."""
        draw, parts = np.random.default_rng(seed), self.parts(samples)
        for _ in range(self.steps):
            yield from np.array_split(np.arange(samples) if parts == 1 else draw.permutation(samples), parts)

    def noise_variance(self, budget: float, samples: int) -> float:
        """δ² = 2S²/(b²·ρ/T) of the noise on the mean gradient of b = ⌊D/batches⌋ samples: T passes of ρ/T spend ρ."""
        return variance_of_rho(budget / self.steps, self.clip_norm, max(1, samples // self.parts(samples)))

    def largest_change(self, budget: float, samples: int, elements: int) -> float:
        """L2 norm that an honest change of `elements` numbers exceeds with chance `CHANCE_OF_INJUSTICE` at most.

        Each of n = T·batches steps moves the model by η(g + z) with |g| ≤ S; the noises add up to N(0, nδ²I) at most,
        whose norm exceeds √n·δ(√d + t) with chance exp(−t²/2) at most.
        """
        tail = math.sqrt(elements) + math.sqrt(2.0 * math.log(1.0 / CHANCE_OF_INJUSTICE))
        moves = self.steps * self.parts(samples)
        noise = math.sqrt(moves * self.noise_variance(budget, samples)) * tail
        return self.learning_rate * (moves * self.clip_norm + noise) * (1.0 + _ROUNDING)

"""The device's own move in the market: how much privacy to sell at the quoted price. Its costs never leave it.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks.

The platform quotes a unit price r and the external risk R that the device suffers from the others. With private costs
a, b, C the device's utility U(ρ) = rρ − C − a(ρ + αR)² − b(ρ + αR) is a parabola, so its best budget is

    ρ = max(0, (r − b)/(2a) − αR)                                               (6), projected

and `coterie.privacy.zcdp.variance_of_rho` gives the Gaussian noise that spends exactly ρ.
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
class PrivateCosts:
    """What privacy and work cost this device: quadratic a > 0, linear b ≥ 0, fixed C ≥ 0."""

    quadratic: float
    linear: float = 0.0
    fixed: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.quadratic) and self.quadratic > 0):
            raise ValueError(f"quadratic cost must be positive and finite, got {self.quadratic}")
        for name, value in (("linear", self.linear), ("fixed", self.fixed)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} cost must be finite and not negative, got {value}")


@dataclass(frozen=True, slots=True)
class Decision:
    """The device's answer to a quote: the zCDP budget it sells (0 = it declines), its utility and its payment."""

    budget: float
    utility: float
    payment: float

    @property
    def joins(self) -> bool:
        """Whether the device takes part in the round."""
        return self.budget > 0


def best_budget(price: float, external_risk: float, costs: PrivateCosts, risk_weight: float) -> float:
    """ρ = max(0, (r − b)/(2a) − αR)."""
    return max(0.0, (price - costs.linear) / (2.0 * costs.quadratic) - risk_weight * external_risk)


def utility(price: float, budget: float, external_risk: float, costs: PrivateCosts, risk_weight: float) -> float:
    """U = rρ − C − a s² − b s with exposure s = ρ + αR ([MPPFL] eq. 3)."""
    s = budget + risk_weight * external_risk
    return price * budget - costs.fixed - (costs.quadratic * s + costs.linear) * s


def decide(
    price: float, external_risk: float, costs: PrivateCosts, risk_weight: float, *, least_utility: float = -math.inf
) -> Decision:
    """The best budget, or none at all if even that is worth less than `least_utility`.

    By default a device joins whenever it would sell something; 0 makes it decline rounds it would lose by.
    """
    for name, value in (("price", price), ("external_risk", external_risk)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be finite and not negative, got {value}; ask for a new quote")
    budget = best_budget(price, external_risk, costs, risk_weight)
    worth = utility(price, budget, external_risk, costs, risk_weight)
    if budget == 0.0 or worth < least_utility:
        idle = PrivateCosts(costs.quadratic, costs.linear)  # who stays out saves the work, not the leakage
        return Decision(0.0, utility(price, 0.0, external_risk, idle, risk_weight), 0.0)
    return Decision(budget, worth, price * budget)


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

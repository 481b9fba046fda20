"""What all rounds of a task together cost a device, known before the first round.

Gaussian releases compose exactly: T of them with noise multiplier z are one of multiplier z/√T, because their ρ add up,
T/(2z²) = 1/(2(z/√T)²). So the z that keeps T rounds within (ε, δ) is √T times the one that keeps a single round there.
The number of devices does not matter: in a secure sum z is the noise of the sum, of which each device adds its share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coterie.parameters.privacy import LIFETIME_DELTA, UniformPrivacy
from coterie.privacy.gaussian import exact_epsilon, exact_multiplier
from coterie.privacy.preconditions import check_positive

_SAFETY = 1.0 + 1e-9
"""Exceeds the rounding errors of a ledger that composes a million rounds one by one."""


def lifetime_delta(parameters: Mapping[str, Any]) -> float:
    """Return δ of all rounds together: the task's, or `LIFETIME_DELTA` by default."""
    section = parameters.get(UniformPrivacy.section) or {}
    return UniformPrivacy.of(parameters).delta if section.get("delta") is not None else LIFETIME_DELTA


def multiplier_for(target_epsilon: float, delta: float, rounds: int) -> float:
    """Return the least noise multiplier z that keeps `rounds` releases within (target_epsilon, delta) together.

    Examples:
        >>> round(multiplier_for(4.0, 1e-5, 50), 3)
        7.645
    """
    return math.sqrt(check_positive("rounds", rounds)) * exact_multiplier(target_epsilon, delta) * _SAFETY


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A task whose rounds all have the same Gaussian noise and are each done once.

    Attributes:
        multiplier: z, of a device's update or of a secure sum.
        rounds: of the task.
        delta: δ of all rounds together.
    """

    multiplier: float
    rounds: int
    delta: float

    @classmethod
    def of(cls, parameters: Mapping[str, Any], rounds: int) -> Lifetime | None:
        """Read from the parameters of a task with the same noise for every device and round; None without noise."""
        privacy, delta = UniformPrivacy.of(parameters), lifetime_delta(parameters)
        if privacy.noise_multiplier is not None:
            return cls(privacy.noise_multiplier, rounds, delta)
        if privacy.target_epsilon is not None:
            return cls(multiplier_for(privacy.target_epsilon, delta, rounds), rounds, delta)
        return None if privacy.epsilon is None else cls(exact_multiplier(privacy.epsilon, delta), rounds, delta)

    @property
    def epsilon(self) -> float:
        """ε against the device left out."""
        return exact_epsilon(self.multiplier / math.sqrt(self.rounds), self.delta)

    @property
    def epsilon_replaced(self) -> float:
        """ε against the device, or one of its examples, replaced by any other: 4 × ρ."""
        return exact_epsilon(self.multiplier / (2.0 * math.sqrt(self.rounds)), self.delta)

    def __str__(self) -> str:
        rounds = "its one round" if self.rounds == 1 else f"all {self.rounds} rounds together"
        return (
            f"ε = {_up(self.epsilon)} for {rounds} at δ = {self.delta:g}, the device left out "
            f"({_up(self.epsilon_replaced)} replaced), with noise of {self.multiplier:.4g} clip norms; "
            "a round that is opened again costs again"
        )


def _up(epsilon: float) -> str:
    """Round up to two decimal places."""
    return f"{math.ceil(epsilon * 100.0 - 1e-6) / 100.0:.2f}"

"""Parameters of the kinds of privacy: `parameters.privacy` of a task."""

from __future__ import annotations

from typing import Literal

from coterie.parameters.declaration import ParameterGroup, parameter, parameter_group

MOST_MULTIPLIER = 1000.0
"""The largest noise multiplier."""
LIFETIME_DELTA = 1e-5
"""δ of all rounds together, where a task gives target_epsilon and no delta."""


@parameter_group("privacy", "uniform")
class UniformPrivacy(ParameterGroup):
    """The same noise for every device: a multiplier, or the (ε, δ) from which it follows exactly."""

    noise_multiplier: float | None = parameter(
        default=None, above=0, at_most=MOST_MULTIPLIER, help="Standard deviation of the noise over the clip norm."
    )
    epsilon: float | None = parameter(default=None, above=0, at_most=1000, help="ε of one round.")
    delta: float = parameter(
        default=1e-6,
        above=0,
        below=1,
        title="δ of all rounds together",
        help="δ of one round; with target_epsilon, of all rounds together, and 1e-5 when left out.",
    )
    target_epsilon: float | None = parameter(
        default=None,
        above=0,
        at_most=1000,
        title="ε of all rounds together",
        help="The noise of each round follows from it.",
    )
    clip_quantile: float | None = parameter(
        default=None,
        above=0,
        below=1,
        help="In a star: share of the updates that the clip norm moves to leave unclipped; left out, it stays.",
    )
    clip_rate: float | None = parameter(
        default=None,
        above=0,
        at_most=1,
        help="In a star: a round changes the clip norm by a factor of e^rate at most; 0.2 with clip_quantile.",
    )

    def requirements(self) -> None:
        if (self.noise_multiplier is None) == (self.epsilon is None):
            raise ValueError(
                "give one of noise_multiplier, epsilon (of one round, with delta) and target_epsilon (of all rounds, "
                "with delta) for privacy uniform"
            )

    def multiplier(self) -> float:
        """Standard deviation of the noise over the clip norm; 0 where the task promises none."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        if self.epsilon is None:
            return 0.0
        from coterie.privacy.gaussian import exact_multiplier

        return exact_multiplier(self.epsilon, self.delta)


@parameter_group("privacy", "trust")
class TrustPrivacy(ParameterGroup):
    """Noise by trust in the head: none from the threshold on, ε(α) below it, `noise_max` for a device alone."""

    trust_threshold: float = parameter(
        default=0.7,
        at_least=0,
        at_most=1,
        title="Trust for raw updates",
        help="α_th: from here on a member's update goes to its head without noise.",
    )
    noise_max: float = parameter(
        default=0.6,
        above=0,
        at_most=MOST_MULTIPLIER,
        title="Noise of a device alone",
        help="σ_max over the clip norm; no device adds more.",
    )
    delta: float = parameter(default=1e-6, above=0, below=1, help="δ of every release.")
    calibration: Literal["paper", "exact"] = parameter(
        default="exact", help='Noise by ε: "exact" is the least there is for (ε, δ), "paper" is [SCFL] eq (9).'
    )


@parameter_group("privacy", "partial")
class PartialPrivacy(ParameterGroup):
    """Laplace noise of the devices that exchange with a device they do not trust."""

    epsilon: float = parameter(
        default=1.0, above=0, at_most=1000, title="ε of a noised round", help="ε of one message."
    )
    sensitivity: Literal["clipped", "paper"] = parameter(
        default="clipped", help="What the noise is scaled to: the clip, which is proven, or the paper's constant."
    )
    clip: float = parameter(default=20.0, above=0, title="Clip of a sample's gradient", help="L1 norm.")


@parameter_group("privacy", "optimised")
class OptimisedPrivacy(ParameterGroup):
    """The noise problem (d²/2L) max σ² + γ Σρ of [DPVD]."""

    clip: float = parameter(default=1.0, above=0, help="M, the clip norm.")
    dimension: float = parameter(
        default=1.0, above=0, title="Dimension d of the noise problem", help="d of the noise problem."
    )
    smoothness: float = parameter(default=10.0, above=0, help="L of the noise problem.")
    privacy_weight: float = parameter(
        default=1e-2, above=0, title="Weight of privacy", help="γ; larger adds more noise."
    )
    most_budget: float | None = parameter(
        default=None, above=0, help="Most ρ a device may spend in a round.", unit="zCDP"
    )
    least_budget: float | None = parameter(
        default=None, above=0, help="Least ρ a device spends in a round.", unit="zCDP"
    )

    def requirements(self) -> None:
        if self.most_budget and self.least_budget and self.least_budget > self.most_budget:
            raise ValueError(
                f"least_budget {self.least_budget} is above most_budget {self.most_budget}; lower it or raise the other"
            )

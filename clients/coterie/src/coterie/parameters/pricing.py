"""Parameters of the incentives: `parameters.pricing` of a task."""

from __future__ import annotations

import math
from typing import Literal

from coterie.parameters.declaration import ParameterGroup, parameter, parameter_group

MICRO = "micro-credits"


@parameter_group("pricing")
class PotParameters(ParameterGroup):
    """Incentives that share a pot."""

    round_microcredits: int = parameter(
        default=0, at_least=0, at_most=2**53, help="Pot of a round; 0 = an even share of the escrow.", unit=MICRO
    )


@parameter_group("pricing", "payoff")
class PayoffParameters(PotParameters):
    """ "payoff": devices share a pot by quality, or earn the payoff of their cluster."""

    credits_per_point: float = parameter(
        default=0.0,
        at_least=0,
        at_most=1e9,
        title="Credits per point of payoff",
        help="Credits for each point of a cluster's payoff; 0 = shares of each round's pot.",
        unit="credits",
    )


@parameter_group("pricing", "contribution")
class ContributionParameters(PotParameters):
    """ "contribution": devices share a round's pot by what their updates were worth to the model."""

    evaluation_seconds: float = parameter(
        default=600.0, above=0, at_most=2_592_000, help="Longest wait for the evaluator.", unit="seconds"
    )
    evaluations: int = parameter(
        default=2000, at_least=2, at_most=1_000_000, help="Most models that the evaluator values in a round."
    )


@parameter_group("pricing", "stackelberg")
class StackelbergParameters(ParameterGroup):
    """ "stackelberg": the public part of the market for privacy budgets, costs in credits ([MPPFL] section 1.9)."""

    solver: Literal["exact", "mean-field", "iterate", "agnostic"] = parameter(
        default="exact", help="How the price is found; agnostic ignores leakage."
    )
    influence: Literal["direct", "combined", "declared"] = parameter(
        default="direct",
        help="Ties that hops are counted along: direct trust; combined trust, which includes paths; or what owners "
        "who are friends declare of each other.",
    )
    hops: int = parameter(default=5, at_least=1, at_most=100, help="How far a secret travels.")
    discount: float = parameter(default=0.5, above=0, below=1, help="What each hop leaves of it.")
    floor: float = parameter(default=0.0, at_least=0, at_most=1, help="Least influence of a tie.")
    risk_weight: float = parameter(default=0.05, at_least=0, below=1, help="α, weight of the external risk.")
    balance: float = parameter(default=0.5, above=0, below=1, help="The leader's balance of accuracy and cost.")
    accuracy_weight: float = parameter(
        default=1.0,
        at_least=0,
        title="What accuracy is worth",
        help="ε of every device, against money, unless curvature is given; larger buys more privacy.",
    )
    curvature: float | None = parameter(
        default=None, above=0, at_most=1e30, help="β/μ²; then ε_i = p(β/μ²)S²θ_i²/D_i² by samples and model size."
    )
    cost_quadratic: float = parameter(default=1.0, above=0, help="Expected a; true costs stay on the devices.")
    cost_linear: float = parameter(default=0.04, at_least=0, help="Expected b.")
    cost_fixed: float = parameter(
        default=0.0, at_least=0, at_most=1e9, help="Expected C of computing a round; the price covers it."
    )
    cost_spread: float = parameter(
        default=0.0, at_least=0, at_most=0.9, help="Prior: a and b lie within ± this share of what is expected."
    )
    headroom: float = parameter(
        default=2.0, at_least=1, at_most=1000, help="A device may sell at most this many times what is expected."
    )
    round_microcredits: int = parameter(
        default=0, at_least=0, at_most=2**53, help="Pot shared by quality besides the price.", unit=MICRO
    )
    credits_per_point: float = parameter(
        default=0.0,
        at_least=0,
        at_most=1e9,
        help="In clusters, credits for each point of payoff; 0 = shares of the pot.",
        unit="credits",
    )

    def requirements(self) -> None:
        if self.cost_spread and self.solver not in ("exact", "mean-field"):
            raise ValueError(
                f'cost_spread is a prior of the leaders "exact" and "mean-field", which "{self.solver}" does not have; '
                "leave it out or choose one of them"
            )


@parameter_group("alike")
class Alike(ParameterGroup):
    """Users whose data are alike."""

    devices: tuple[str, ...] = parameter(min_length=2, max_length=2000, help="Ids of their devices.")
    correlation: float = parameter(above=0, at_most=1e9, help="w of every two of them.")


@parameter_group("pricing", "correlated")
class CorrelatedParameters(ParameterGroup):
    """ "correlated": the public part of a survey ([CAPP]), costs in credits."""

    constant: float = parameter(default=10.0, above=0, at_most=700, help="The public constant of privacy loss.")
    variance_low: float = parameter(
        default=0.01,
        above=0,
        title="Least noise variance",
        help="0.3721 keeps one answer below ε = 8.",
        unit="ranges squared",
    )
    variance_high: float | None = parameter(
        default=None, above=0, help="Largest noise variance; left out, e^constant.", unit="ranges squared"
    )
    error: float = parameter(
        default=math.sqrt(200.0),
        above=0,
        title="Error of the sum, in ranges",
        help="Error of the sum that accuracy is certified for.",
        unit="ranges",
    )
    variance_model: Literal["paper", "exact"] = parameter(
        default="paper", help="Variance that hides an answer: the paper's bound or the exact one."
    )
    prices: Literal["pivot", "even", "personal"] = parameter(default="pivot", help="How the payment is split.")
    correlation: float | None = parameter(
        default=None, above=0, at_most=1e9, help="w of every two users' data; left out, the trust between them."
    )
    alike: tuple[Alike, ...] = parameter(
        default=(), max_length=1000, help="Groups whose data are alike, each with its own w; the largest counts."
    )
    known: tuple[str, ...] = parameter(
        default=(), max_length=1000, help="Ids of devices whose answers the adversary already has."
    )
    own_care: float = parameter(default=1.0, at_least=0, help="s_ii: what its own privacy is worth to a user.")
    social_care: float = parameter(
        default=1.0, at_least=0, help="s_ij = this × trust: what a friend's privacy is worth to a user."
    )

    def requirements(self) -> None:
        if self.known and self.variance_model != "exact":
            raise ValueError('the paper\'s variance holds for an empty set "known" only; give variance_model "exact"')

    @property
    def most_variance(self) -> float:
        """The largest noise variance of an answer."""
        return math.exp(self.constant) if self.variance_high is None else self.variance_high

"""Parameters of the steps of a rule: `parameters.rule` of a task, all steps in one object."""

from __future__ import annotations

from coterie.parameters.declaration import ParameterGroup, parameter, parameter_group

MAX_ITERATIONS = 1000
MAX_TAU = 1e150
"""Its square must be a finite number."""


@parameter_group("rule", "trust")
class TrustRuleParameters(ParameterGroup):
    """Weights by trust of the publisher's own devices."""

    known: tuple[str, ...] = parameter(default=(), help="Ids of devices that you know to be honest.")


@parameter_group("rule", "nnm", "krum", "multi-krum", "mean-around-median")
class FaultParameters(ParameterGroup):
    """Rules that tolerate a number of faulty devices."""

    f: int = parameter(at_least=0, title="Devices that may lie", help="Devices that may lie; fewer than half.")


@parameter_group("rule", "trimmed-mean")
class TrimmingParameters(ParameterGroup):
    """The trimmed mean takes one of both."""

    f: int | None = parameter(
        default=None, at_least=0, title="Devices that may lie", help="Devices that may lie; fewer than half."
    )
    share: float | None = parameter(
        default=None, at_least=0, at_most=0.49, help="Weight left out at each end, in place of f."
    )

    def requirements(self) -> None:
        if self.f is not None and self.share is not None:
            raise ValueError("give share or f, not both")
        if self.f is None and self.share is None:
            raise ValueError("f is missing; give f or share")


@parameter_group("rule", "centred-clipping")
class ClippingParameters(ParameterGroup):
    """Clipping around a centre."""

    radius: float = parameter(above=0, help="How far one update may pull at a time.")
    iterations: int = parameter(default=1, at_least=1, at_most=MAX_ITERATIONS, help="How often updates are clipped.")


@parameter_group("rule", "bucketing")
class BucketingParameters(ParameterGroup):
    """Means of random buckets of updates."""

    size: int = parameter(at_least=1, help="Updates in a bucket.")
    seed: int = parameter(default=0, at_least=0, at_most=2**53, help="Decides which updates share a bucket.")


@parameter_group("rule", "fedavgm")
class MomentumParameters(ParameterGroup):
    """The server's momentum."""

    learning_rate: float = parameter(default=1.0, above=0, help="η, length of a step.")
    momentum: float = parameter(default=0.9, at_least=0, at_most=1, help="β, how much of the last step stays.")


@parameter_group("rule", "fedadam", "fedyogi", "fedadagrad")
class AdaptiveParameters(ParameterGroup):
    """The server's adaptive step."""

    learning_rate: float = parameter(default=0.1, above=0, help="η, length of a step.")
    beta1: float = parameter(default=0.9, at_least=0, at_most=1, help="β₁, how much of the mean change stays.")
    beta2: float = parameter(default=0.99, at_least=0, at_most=1, help="β₂, how much of the mean square stays.")
    tau: float = parameter(default=1e-3, above=0, at_most=MAX_TAU, help="τ, bounds the step where changes are small.")

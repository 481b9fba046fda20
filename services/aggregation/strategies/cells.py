"""Cells: base stations serve devices in turn, and several models are trained at once; each device trains one of them.

[DPVD] Multi-task federated learning over cells. The planner chooses the devices that a cell serves, and a device
chooses its model; here an update counts for the model that it names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from coterie.parameters.privacy import OptimisedPrivacy
from coterie.records.enums import ParticipationState, PrivacyUnit
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.domain.accumulator import Accumulator
from services.aggregation.domain.dissimilarity import LIMIT, Told, descent, dissimilarity, noise_term
from services.aggregation.domain.plausibility import noised_norm
from services.aggregation.domain.records import Participation
from services.aggregation.domain.rules.choice import choose
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadTask
from services.aggregation.strategies.base import Strategy
from services.aggregation.strategies.parts.combination import Combination
from services.aggregation.strategies.parts.delivery import DeliveryPolicy
from services.aggregation.strategies.parts.task_check import TaskCheck
from services.aggregation.strategies.parts.terms import TaskTerms
from services.aggregation.strategies.roster import Update


class CellsTerms(TaskTerms):
    """Terms of several models."""

    @property
    def stores_norms(self) -> bool:
        """True: the dissimilarity of a model's updates is computed from their norms, which include the noise."""
        return True

    @property
    def clip_norm(self) -> float:
        if self.specification.privacy != "optimised":
            return super().clip_norm
        return OptimisedPrivacy.of(self.specification.parameters).clip

    @property
    def steps(self) -> int:
        """Local steps of a round."""
        return max(int(self.specification.training.get("epochs", 1)), 1)

    @property
    def rate(self) -> float:
        """Learning rate η."""
        return float(self.specification.training.get("learning_rate", 0.1))


class CellsTaskCheck(TaskCheck):
    """At least two models, updates in the clear."""

    lockstep_reason = "in cells a schedule says which devices are served in which round"

    def require_valid(self) -> None:
        count = len(self.specification.model_digests)
        if count < 2:
            raise BadTask(
                f"multitask needs at least 2 initial models, got {count}: with one model use the preset fedavg"
            )

    def require_secure_sums(self, rules: SumRules) -> None:
        raise BadTask(
            "sums.mode secure: devices of multitask choose their own model, so that a sum could be of one or two of "
            "them; leave sums out, or use the preset fedavg"
        )


class CellsDelivery(DeliveryPolicy):
    """Updates whose noise may be per example."""

    terms: CellsTerms

    def norm_limit(self, update: Update) -> float:
        """With example-level privacy each step moves the model by η(g + noise/X), |g| ≤ M on the mean of X examples."""
        spec = self.specification
        if spec.privacy != "optimised" or spec.privacy_unit is not PrivacyUnit.EXAMPLE:
            return super().norm_limit(update)
        noise = update.item.noise_multiplier / max(update.samples, 1)
        return self.terms.rate * self.terms.steps * noised_norm(self.terms.clip_norm, noise, update.elements)


class CellsCombination(Combination):
    """A mean for each model, with [DPVD]'s bounds on its convergence."""

    terms: CellsTerms

    def metrics(self, participations: Sequence[Participation], sums: Mapping[int, Accumulator]) -> dict[str, float]:
        """ζ₂ and the terms of [DPVD]'s bounds by model, computed from released updates only."""
        metrics: dict[str, float] = {}
        if not choose(self.specification.rule, self.specification.parameters_json).is_mean:
            return metrics
        for line, total in sorted(sums.items()):
            delivered = [
                p
                for p in participations
                if p.state is ParticipationState.DELIVERED and p.model_index == line and p.norm > 0
            ]
            if len(delivered) > 1 and total.weight_units > 0:
                metrics |= {f"{name}[{line}]": value for name, value in self._spread(delivered, total).items()}
        return metrics

    def _spread(self, delivered: Sequence[Participation], total: Accumulator) -> dict[str, float]:
        mean_square = math.fsum(float(np.square(piece).sum()) for piece in total.means())
        noise = [self._noise(p) for p in delivered]
        terms = [Told(p.weight, p.norm, update) for p, (update, _) in zip(delivered, noise, strict=True)]
        result = dissimilarity(terms, mean_square, total.layout.elements)
        if result is None:
            return {}
        metrics = {
            "dissimilarity": result.most,
            "descent": descent(result.most, mean_square, self.terms.rate, self.terms.steps),
        }
        if result.without_noise is not None:
            metrics["dissimilarity_without_noise"] = result.without_noise
        if self.specification.privacy == "optimised":
            privacy = OptimisedPrivacy.of(self.specification.parameters)
            metrics["noise_term"] = noise_term(
                [gradient for _, gradient in noise], privacy.dimension, privacy.smoothness
            )
        return metrics

    def _noise(self, p: Participation) -> tuple[float, float]:
        """Deviation of a device's promised noise on each number of its update, and of its mean gradient (σ)."""
        deviation = pb.WorkItem.FromString(p.work).noise_multiplier * self.terms.clip_norm
        if self.specification.privacy == "optimised" and self.specification.privacy_unit is PrivacyUnit.EXAMPLE:
            gradient = deviation / max(p.samples, 1)
            return self.terms.rate * self.terms.steps * gradient, gradient
        return deviation, deviation

    def convergence_warnings(self, metrics: Mapping[str, float]) -> list[str]:
        return [why for line in range(len(self.specification.model_digests)) if (why := self._warning(line, metrics))]

    def _warning(self, line: int, metrics: Mapping[str, float]) -> str:
        most = metrics.get(f"dissimilarity[{line}]")
        if most is None:
            return ""
        if most >= LIMIT:
            bare = metrics.get(f"dissimilarity_without_noise[{line}]")
            noise = "noise hides the mean update" if bare is None else f"{bare:.3g} without the noise that is promised"
            return (
                f"model {line}: its updates are dissimilar by ζ₂ ≤ {most:.3g} ({noise}); convergence is known below "
                f"{LIMIT:g}: more devices, more samples or less noise bring it down"
            )
        gain, lost = metrics[f"descent[{line}]"], metrics.get(f"noise_term[{line}]", 0.0)
        if gain <= lost:
            return (
                f"model {line}: the certain gain of a round, η(1 − 4ζ₂)‖∇F‖² = {gain:.3g}, is at most the cost of its "
                f"noise, d²σ²/2L = {lost:.3g}; it may be as good as it gets with this noise"
            )
        return ""


class Cells(Strategy):
    """A star for every model."""

    topology = "cells"
    privacies = ("optimised", "uniform", "none")
    preset = "multitask"
    reasons = MappingProxyType({"optimised": "it is solved there"})

    terms_class = CellsTerms
    task_check_class = CellsTaskCheck
    delivery_class = CellsDelivery
    combination_class = CellsCombination

"""Cells: several models are learned at once by devices that base stations serve in turn; each trains one of them.

[DPVD] Multi-task federated learning over cells. The planner says whom a cell serves, a device which model is its own;
here an update counts for the model line it names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from coterie.records.enums import ParticipationState, PrivacyUnit
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.domain.accumulator import Accumulator
from services.aggregation.domain.dissimilarity import LIMIT, Told, descent, dissimilarity, noise_term
from services.aggregation.domain.plausibility import noised_norm
from services.aggregation.domain.records import Participation
from services.aggregation.domain.rules.choice import choose
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadTask
from services.aggregation.strategies import strategy
from services.aggregation.strategies.base import Strategy
from services.aggregation.strategies.roster import Update


@strategy(
    "cells", privacy=("optimised", "uniform", "none"), preset="multitask", why={"optimised": "it is solved there"}
)
class Cells(Strategy):
    """A star for every model line."""

    in_step = "in cells a schedule says who is served in which round"

    def check(self) -> None:
        lines = len(self.specification.model_digests)
        if lines < 2:
            raise BadTask(
                f"multitask needs at least 2 initial models, {lines} came: with one model use the preset fedavg"
            )

    def check_sums(self, rules: SumRules) -> None:
        raise BadTask(
            "sums.mode secure: devices of multitask choose their own model, so that a sum could be of one or two of "
            "them; leave sums out, or use the preset fedavg"
        )

    @property
    def keeps_norms(self) -> bool:
        """Dissimilarity of a model's updates is computed from their norms, which include the noise."""
        return True

    @property
    def clip_norm(self) -> float:
        if self.specification.privacy != "optimised":
            return super().clip_norm
        return float(self.specification.parameters.get("privacy", {}).get("clip", 1.0))

    def largest_norm(self, update: Update) -> float:
        """Where examples are hidden, each of the steps moves the model by η(g + noise/X), |g| ≤ M on the mean of X."""
        spec = self.specification
        if spec.privacy != "optimised" or spec.privacy_unit is not PrivacyUnit.EXAMPLE:
            return super().largest_norm(update)
        noise = update.item.noise_multiplier / max(update.samples, 1)
        return self._rate * self._steps * noised_norm(self.clip_norm, noise, update.elements)

    @property
    def _steps(self) -> int:
        return max(int(self.specification.training.get("epochs", 1)), 1)

    @property
    def _rate(self) -> float:
        return float(self.specification.training.get("learning_rate", 0.1))

    # --- whether learning is known to converge ------------------------------------------------------------------------

    def findings(self, everybody: Sequence[Participation], sums: Mapping[int, Accumulator]) -> dict[str, float]:
        """ζ₂ and the terms of [DPVD]'s bounds by model, of released updates: nothing more is told of anybody."""
        found: dict[str, float] = {}
        if not choose(self.specification.rule, self.specification.parameters_json).is_mean:
            return found
        for line, total in sorted(sums.items()):
            there = [
                p for p in everybody if p.state is ParticipationState.DELIVERED and p.model_index == line and p.norm > 0
            ]
            if len(there) > 1 and total.weight_units > 0:
                found |= {f"{name}[{line}]": value for name, value in self._spread(there, total).items()}
        return found

    def _spread(self, there: Sequence[Participation], total: Accumulator) -> dict[str, float]:
        mean_square = math.fsum(float(np.square(piece).sum()) for piece in total.means())
        noise = [self._noise(p) for p in there]
        told = [Told(p.weight, p.norm, update) for p, (update, _) in zip(there, noise, strict=True)]
        found = dissimilarity(told, mean_square, total.layout.elements)
        if found is None:
            return {}
        figures = {"dissimilarity": found.most, "descent": descent(found.most, mean_square, self._rate, self._steps)}
        if found.without_noise is not None:
            figures["dissimilarity_without_noise"] = found.without_noise
        if self.specification.privacy == "optimised":
            terms = self.specification.parameters.get("privacy", {})
            dimension, smoothness = float(terms.get("dimension", 1.0)), float(terms.get("smoothness", 10.0))
            figures["noise_term"] = noise_term([gradient for _, gradient in noise], dimension, smoothness)
        return figures

    def _noise(self, p: Participation) -> tuple[float, float]:
        """Deviation of a device's promised noise on each number of its update, and of its mean gradient (σ)."""
        deviation = pb.WorkItem.FromString(p.work).noise_multiplier * self.clip_norm
        if self.specification.privacy == "optimised" and self.specification.privacy_unit is PrivacyUnit.EXAMPLE:
            gradient = deviation / max(p.samples, 1)
            return self._rate * self._steps * gradient, gradient
        return deviation, deviation

    def warnings(self, figures: Mapping[str, float]) -> list[str]:
        return [why for line in range(len(self.specification.model_digests)) if (why := self._warning(line, figures))]

    def _warning(self, line: int, figures: Mapping[str, float]) -> str:
        most = figures.get(f"dissimilarity[{line}]")
        if most is None:
            return ""
        if most >= LIMIT:
            bare = figures.get(f"dissimilarity_without_noise[{line}]")
            noise = "noise hides the mean update" if bare is None else f"{bare:.3g} without the noise that is promised"
            return (
                f"model {line}: its updates are dissimilar by ζ₂ ≤ {most:.3g} ({noise}); convergence is known below "
                f"{LIMIT:g}: more devices, more samples or less noise bring it down"
            )
        gain, lost = figures[f"descent[{line}]"], figures.get(f"noise_term[{line}]", 0.0)
        if gain <= lost:
            return (
                f"model {line}: what a round is sure to gain, η(1 − 4ζ₂)‖∇F‖² = {gain:.3g}, is no more than what its "
                f"noise costs, d²σ²/2L = {lost:.3g}; it may be as good as it gets with this noise"
            )
        return ""

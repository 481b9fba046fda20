"""Cells: several models are learned at once by devices that base stations serve in turn; each trains one of them.

[DPVD] Multi-task federated learning over cells. The planner says whom a cell serves, a device which model is its own;
here an update counts for the model line it names.
"""

from __future__ import annotations

from coterie.records.words import PrivacyUnit
from services.aggregation.domain.plausibility import noised_norm
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadTask
from services.aggregation.ways import way
from services.aggregation.ways.base import Way
from services.aggregation.ways.roster import Update


@way("cells", privacy=("optimised", "uniform", "none"), preset="multitask", why={"optimised": "it is solved there"})
class Cells(Way):
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
    def clip_norm(self) -> float:
        if self.specification.privacy != "optimised":
            return super().clip_norm
        return float(self.specification.parameters.get("privacy", {}).get("clip", 1.0))

    def largest_norm(self, update: Update) -> float:
        """Where examples are hidden, each of the steps moves the model by η(g + noise/X), |g| ≤ M on the mean of X."""
        spec = self.specification
        if spec.privacy != "optimised" or spec.privacy_unit is not PrivacyUnit.EXAMPLE:
            return super().largest_norm(update)
        steps = max(int(spec.training.get("epochs", 1)), 1)
        rate = float(spec.training.get("learning_rate", 0.1))
        noise = update.item.noise_multiplier / max(update.samples, 1)
        return rate * steps * noised_norm(self.clip_norm, noise, update.elements)

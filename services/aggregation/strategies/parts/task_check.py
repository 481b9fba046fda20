"""Task check: can devices work on this task as specified?"""

from __future__ import annotations

from typing import ClassVar

from coterie.learning.models import is_statistic
from services.aggregation.domain.layout import Layout
from services.aggregation.domain.rules.choice import Choice
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadTask
from services.aggregation.strategies.parts.part import Part


class TaskCheck(Part):
    """Every method raises BadTask when the task cannot run."""

    lockstep_reason: ClassVar[str] = ""
    """Why devices must work on the same round together; empty = asynchronous tasks are allowed."""

    def require_valid(self) -> None:
        """Check the specification."""
        count = len(self.specification.model_digests)
        if count != 1:
            raise BadTask(f"this task needs exactly one initial model, got {count}: upload one and name its digest")

    def require_model(self, layout: Layout) -> None:
        """Check the layout of the initial model."""
        statistic = next((tensor.name for tensor in layout.tensors if is_statistic(tensor.name)), "")
        if statistic and self.terms.clips:
            raise BadTask(
                f"the model holds running statistics ({statistic}), which noise would spoil and which reveal data "
                'without it; leave them out with model_bytes(module, exchange="trainable"), or use group normalisation'
            )

    def require_rule(self, choice: Choice) -> None:
        """Check that the server sees the updates that the task's rule combines."""

    def require_asynchronous(self) -> None:
        """Check that the task can run without common rounds."""
        if self.lockstep_reason:
            raise BadTask(f"mode asynchronous: {self.lockstep_reason}; leave the mode out, or choose the preset fedavg")
        if self.specification.draws:
            raise BadTask(
                "mode asynchronous: every enrolled device works when it is ready, none is drawn by lot; leave "
                "max_devices and fraction out (parameters.asynchronous.buffer says how many updates make a step)"
            )

    def require_secure_sums(self, rules: SumRules) -> None:
        """Check that what the devices deliver can go into secure sums."""

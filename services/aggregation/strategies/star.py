"""Star: every device delivers its own model update, and the new model is their mean by samples."""

from __future__ import annotations

from services.aggregation.strategies.base import Strategy


class Star(Strategy):
    """Federated averaging: all default parts."""

    topology = "star"
    privacies = ("none", "uniform")
    preset = "fedavg"

"""Star: every device hands in its own change of the model, and the new model is their mean by samples."""

from __future__ import annotations

from services.aggregation.strategies import strategy
from services.aggregation.strategies.base import Strategy


@strategy("star", privacy=("none", "uniform"), preset="fedavg")
class Star(Strategy):
    """Federated averaging; what the base does."""

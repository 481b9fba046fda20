"""Star: every device hands in its own change of the model, and the new model is their mean by samples."""

from __future__ import annotations

from services.aggregation.ways import way
from services.aggregation.ways.base import Way


@way("star", privacy=("none", "uniform"), preset="fedavg")
class Star(Way):
    """Federated averaging; what the base does."""

"""Cells: several models are learned at once by devices that base stations serve in turn; each trains one of them.

[DPVD] Multi-task federated learning over cells. The planner says whom a cell serves, a device which model is its own;
here an update counts for the model line it names.
"""

from __future__ import annotations

from services.aggregation.errors import BadTask
from services.aggregation.ways import way
from services.aggregation.ways.base import Way


@way("cells", privacy=("optimised", "uniform", "none"), preset="multitask", why={"optimised": "it is solved there"})
class Cells(Way):
    """A star for every model line."""

    def check(self) -> None:
        lines = len(self.specification.model_digests)
        if lines < 2:
            raise BadTask(
                f"multitask needs at least 2 initial models, {lines} came: with one model use the preset fedavg"
            )

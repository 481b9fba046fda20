"""When a task stops before its last round: a version reached the target, or none was better for a while."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from coterie.learning.metrics import better_of
from services.aggregation.domain.measurements import SEVERAL
from services.aggregation.errors import BadTask

UP, DOWN = "up", "down"


@dataclass(frozen=True, slots=True)
class Stop:
    """What a task's specification says under "stop"; see the field comments of `aggregation.proto`."""

    metric: str
    at: float | None = None
    patience: int = 0
    better: str = ""

    @property
    def direction(self) -> str:
        """Which way is better."""
        return self.better or better_of(self.metric)

    @property
    def unheard(self) -> str:
        """Why the task did not stop, where no version has the figure."""
        return (
            f"no version's {self.metric} could stop it: it counts when at least {SEVERAL} devices of {SEVERAL} owners "
            "(all, where fewer take part) or the publisher's evaluator tell it"
        )

    def is_better(self, value: float, than: float) -> bool:
        """Whether one figure is better than another."""
        return value > than if self.direction == UP else value < than

    def best(self, series: Mapping[int, float]) -> int | None:
        """The version with the best figure, the first of several; None when none was measured."""
        sign = -1.0 if self.direction == UP else 1.0
        return min(sorted(series), key=lambda version: sign * series[version], default=None)

    def reason(self, series: Mapping[int, float]) -> str:
        """Why the task stops, by the figure of each version measured so far; empty = it goes on."""
        best = self.best(series)
        if best is None:
            return ""
        if self.at is not None:
            reached = [v for v in sorted(series) if series[v] == self.at or self.is_better(series[v], self.at)]
            if reached:
                first = reached[0]
                wanted = "at least" if self.direction == UP else "at most"
                value = f"{series[first]:.4g} in version {first}"
                return f"{self.metric} reached {value}, the target was {wanted} {self.at:.4g}"
        waited = sum(version > best for version in series)
        if self.patience and waited >= self.patience:
            return (
                f"{self.metric} was not better than {series[best]:.4g} of version {best} in {waited} versions after it"
            )
        return ""


def check(stop: Stop | None, *, measured: bool) -> None:
    """Raise BadTask for an inconsistent stop rule, or for a metric that no device could measure."""
    if stop is None:
        return
    if not 1 <= len(stop.metric) <= 64:
        raise BadTask(f'stop.metric must name a figure, such as "accuracy", in 1 to 64 characters, not {stop.metric!r}')
    if stop.better not in ("", UP, DOWN):
        raise BadTask(f'stop.better must be "up" or "down", not {stop.better!r}')
    if stop.at is not None and not math.isfinite(stop.at):
        raise BadTask(f"stop.at must be a finite number, not {stop.at}")
    if stop.patience < 0 or (stop.at is None and not stop.patience):
        raise BadTask(f"stop needs a target (at), or a patience of at least 1 version, not {stop.patience}")
    if not measured:
        raise BadTask("stop: in a mesh and in a survey the server has no model versions to measure; leave it out")

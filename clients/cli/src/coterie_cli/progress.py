"""Watching a task: what is known of it, kept up to date from its event log, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from coterie.client import Platform
from coterie.records import Event, Model, Round, RoundState, Task

WAIT_SECONDS = 1.0


@dataclass(slots=True)
class Standing:
    """Where a task stands.

    Attributes:
        task: the task as REST describes it.
        rounds: rounds by number, the present one included.
        events: those since the standing before.
        models: versions with their figures, once the task has ended.
    """

    task: Task
    rounds: dict[int, Round] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    models: tuple[Model, ...] = ()

    @property
    def total(self) -> int:
        """Rounds the task has."""
        return self.task.specification.rounds

    @property
    def done(self) -> int:
        """Rounds that are done."""
        return sum(round.state == RoundState.DONE for round in self.rounds.values())

    @property
    def current(self) -> Round | None:
        """The round under way, or the last."""
        return self.rounds[max(self.rounds)] if self.rounds else None

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.task.state.has_ended

    def metric(self, name: str) -> tuple[float, int] | None:
        """The newest value of a metric and the version it is of; −1 in a mesh, where each device has its own model."""
        for model in sorted(self.models, key=lambda item: -item.version):
            if name in model.metrics:
                return model.metrics[name], model.version
        own = self.task.specification.topology == "mesh"
        for number in sorted(self.rounds, reverse=True):
            if name in self.rounds[number].metrics:
                return self.rounds[number].metrics[name], -1 if own else number - 1
        return None

    def seconds_left(self, now: float) -> float | None:
        """Time the remaining rounds will take if they go on as before; None before the first is done."""
        if not self.done or not self.task.started_at:
            return None
        finished = max(round.done_at for round in self.rounds.values() if round.state == RoundState.DONE)
        pace = (finished - self.task.started_at) / self.done
        return max(0.0, finished + pace * (self.total - self.done) - now)


def watch(platform: Platform, task_id: str, *, now: Callable[[], float] = time.time) -> Iterator[Standing]:
    """Standings of a task as they change, at least once a second, the last when it has ended."""
    standing, after = Standing(platform.task(task_id)), 0
    while True:
        _refresh(platform, standing)
        yield standing
        if standing.ended:
            return
        standing.events = platform.events(task_id, after=after, wait_seconds=WAIT_SECONDS)
        after = standing.events[-1].number if standing.events else after
        standing.task = platform.task(task_id)


def _refresh(platform: Platform, standing: Standing) -> None:
    """Asks for the rounds that may have changed: those not known to be done."""
    settled = [number for number, round in standing.rounds.items() if round.state == RoundState.DONE]
    fresh = platform.rounds(standing.task.id, after=max(settled, default=0))
    standing.rounds |= {round.number: round for round in fresh}
    if standing.ended:
        standing.models = tuple(platform.models(standing.task.id))

"""Progress of a task, kept up to date from its event log, with an estimate of the remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from coterie.client import Platform
from coterie.records import Event, Model, Round, RoundState, Task

WAIT_SECONDS = 1.0


@dataclass(slots=True)
class TaskProgress:
    """Progress of a task.

    Attributes:
        task: the task as REST describes it.
        rounds: rounds by number, the current one included.
        events: events since the previous update.
        models: versions with their metrics, once the task has ended.
    """

    task: Task
    rounds: dict[int, Round] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    models: tuple[Model, ...] = ()

    @property
    def total(self) -> int:
        """Number of rounds of the task."""
        return self.task.specification.rounds

    @property
    def done(self) -> int:
        """Number of rounds that are done."""
        return sum(round.state == RoundState.DONE for round in self.rounds.values())

    @property
    def current(self) -> Round | None:
        """The current round, or the last one."""
        return self.rounds[max(self.rounds)] if self.rounds else None

    @property
    def has_ended(self) -> bool:
        """Whether the task has ended."""
        return self.task.state.has_ended

    def metric(self, name: str) -> tuple[float, int] | None:
        """Return the newest value of a metric and its version; −1 in a mesh, where each device has its own model."""
        for model in sorted(self.models, key=lambda item: -item.version):
            if name in model.metrics:
                return model.metrics[name], model.version
        is_mesh = self.task.specification.topology == "mesh"
        for number in sorted(self.rounds, reverse=True):
            if name in self.rounds[number].metrics:
                return self.rounds[number].metrics[name], -1 if is_mesh else number - 1
        return None

    def seconds_left(self, now: float) -> float | None:
        """Estimate the time of the remaining rounds from the mean of those done; None before the first."""
        if not self.done or not self.task.started_at:
            return None
        finished = max(round.done_at for round in self.rounds.values() if round.state == RoundState.DONE)
        mean_seconds = (finished - self.task.started_at) / self.done
        return max(0.0, finished + mean_seconds * (self.total - self.done) - now)


def watch(platform: Platform, task_id: str, *, now: Callable[[], float] = time.time) -> Iterator[TaskProgress]:
    """Yield the progress of a task at each change, at least once a second, until it has ended."""
    progress, after = TaskProgress(platform.task(task_id)), 0
    while True:
        _refresh(platform, progress)
        yield progress
        if progress.has_ended:
            return
        progress.events = platform.events(task_id, after=after, wait_seconds=WAIT_SECONDS)
        after = progress.events[-1].number if progress.events else after
        progress.task = platform.task(task_id)


def _refresh(platform: Platform, progress: TaskProgress) -> None:
    """Load the rounds that are not known to be done."""
    done = [number for number, round in progress.rounds.items() if round.state == RoundState.DONE]
    fresh = platform.rounds(progress.task.id, after=max(done, default=0))
    progress.rounds |= {round.number: round for round in fresh}
    if progress.has_ended:
        progress.models = tuple(platform.models(progress.task.id))

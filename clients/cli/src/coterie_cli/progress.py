"""Watching a task: what is known of it, kept up to date from its event log, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from coterie.client import ENDED, Platform

WAIT_SECONDS = 1.0


@dataclass(slots=True)
class Standing:
    """Where a task stands.

    Attributes:
        task: the task as REST describes it.
        rounds: rounds by number, the present one included.
        events: those since the standing before.
    """

    task: dict[str, Any]
    rounds: dict[int, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Rounds the task has."""
        return int(self.task["specification"]["rounds"])

    @property
    def done(self) -> int:
        """Rounds that are done."""
        return sum(round["state"] == "done" for round in self.rounds.values())

    @property
    def current(self) -> dict[str, Any] | None:
        """The round under way, or the last."""
        return self.rounds[max(self.rounds)] if self.rounds else None

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.task["state"] in ENDED

    def metric(self, name: str) -> float | None:
        """The newest value of a metric."""
        for number in sorted(self.rounds, reverse=True):
            if name in self.rounds[number]["metrics"]:
                return float(self.rounds[number]["metrics"][name])
        return None

    def seconds_left(self, now: float) -> float | None:
        """Time the remaining rounds will take if they go on as before; None before the first is done."""
        if not self.done or not self.task["started_at"]:
            return None
        finished: float = max(round["done_at"] for round in self.rounds.values() if round["state"] == "done")
        pace = (finished - float(self.task["started_at"])) / self.done
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
        after = standing.events[-1]["number"] if standing.events else after
        standing.task = platform.task(task_id)


def _refresh(platform: Platform, standing: Standing) -> None:
    """Asks for the rounds that may have changed: those not known to be done."""
    settled = [number for number, round in standing.rounds.items() if round["state"] == "done"]
    cursor = str(max(settled)) if settled else ""
    path = f"/v1/tasks/{standing.task['id']}/rounds"
    while True:
        page = platform.request("GET", path, params={"limit": 500, "cursor": cursor})
        standing.rounds |= {round["number"]: round for round in page["items"]}
        cursor = page["next_cursor"]
        if not cursor:
            return

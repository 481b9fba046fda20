"""State of a running task: read again while it runs, with listeners for changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from coterie.records import Event, Participation, Round, RoundDetail, Task, TaskSpecification
from services.console.components.contexts import PageContext
from services.console.errors import NotForYou
from services.console.wire.platform import PAGE_ITEMS

MOST_EVENTS = 5_000


@dataclass(slots=True, eq=False)
class Watch:
    """The state of a task's page; `listeners` are called after each change.

    A refresh reads the last page of rounds and the events after the last known one, so its cost does not grow with the
    task's history.
    """

    context: PageContext
    task: Task
    rounds: dict[int, Round] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    participations: Sequence[Participation] = ()
    listeners: list[Callable[[], Any]] = field(default_factory=list)
    _cursor: str = ""

    @classmethod
    async def of(cls, context: PageContext, task_id: str) -> Watch:
        """Load a task that the user may see."""
        task = await context.platform.read(Task, f"/v1/tasks/{task_id}")
        if not context.is_admin and task.publisher != context.person.subject:
            raise NotForYou("this task belongs to another publisher.")
        made = cls(context, task)
        await made._read()
        return made

    @property
    def id(self) -> str:
        return self.task.id

    @property
    def spec(self) -> TaskSpecification:
        """The task's specification."""
        return self.task.specification

    @property
    def ended(self) -> bool:
        """Whether the task has ended."""
        return self.task.state.has_ended

    def in_order(self) -> list[Round]:
        """Return the rounds in order."""
        return [self.rounds[number] for number in sorted(self.rounds)]

    async def refresh(self) -> None:
        """Read the changes and call the listeners if there are any."""
        before = (self.task, self.events[-1:], self.rounds.get(self.task.round), self.participations)
        self.task = await self.context.platform.read(Task, f"/v1/tasks/{self.id}")
        await self._read()
        if before != (self.task, self.events[-1:], self.rounds.get(self.task.round), self.participations):
            for listener in self.listeners:
                listener()

    async def _read(self) -> None:
        await asyncio.gather(self._read_rounds(), self._read_events(), self._read_open_round())

    async def _read_rounds(self) -> None:
        while True:
            page, cursor = await self.context.platform.page(
                f"/v1/tasks/{self.id}/rounds", limit=PAGE_ITEMS, cursor=self._cursor
            )
            self.rounds.update({item.number: item for item in map(Round.from_json, page)})
            if not cursor:
                return
            self._cursor = cursor

    async def _read_events(self) -> None:
        while len(self.events) < MOST_EVENTS:
            after = self.events[-1].number if self.events else 0
            more = await self.context.platform.events(self.id, after)
            self.events += map(Event.from_json, more)
            if len(more) < PAGE_ITEMS:
                return

    async def _read_open_round(self) -> None:
        if self.task.round:
            path = f"/v1/tasks/{self.id}/rounds/{self.task.round}"
            self.participations = (await self.context.platform.read(RoundDetail, path)).participations

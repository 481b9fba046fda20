"""Tasks: models, enrolments, plans, rounds, events, prices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coterie.client.caller import PAGE_ITEMS, Caller, promised
from coterie.errors import NotFound
from coterie.records import (
    Enrolment,
    Event,
    Items,
    Model,
    Participation,
    Plan,
    Quote,
    RegisteredModel,
    Round,
    RoundDetail,
    Task,
)

WATCH_SECONDS = 20.0


class Tasks(Caller):
    """Tasks, from creation to results."""

    def upload_model(self, model: bytes | Path) -> str:
        """Stores an initial model (a safetensors file); its digest."""
        digest, content = promised(model)
        headers = {"Coterie-Digest": digest}
        return self.ask(RegisteredModel, "POST", "/v1/models", headers=headers, content=content, idempotent=True).digest

    def download_model(self, digest: str) -> Path:
        """Path of a model in the cache, fetched and checked if it is not there."""
        return self._download(f"/v1/models/{digest}", digest)

    def create_task(self, **specification: Any) -> Task:
        """A task; the same name and specification give the task that exists."""
        return self.ask(Task, "POST", "/v1/tasks", json=specification, idempotent=True)

    def tasks(self, *, state: str = "", publisher: str = "") -> Iterator[Task]:
        """Tasks, newest first."""
        return self.pages(Task, "/v1/tasks", state=state, publisher=publisher)

    def task(self, task_id: str) -> Task:
        """One task."""
        return self.ask(Task, "GET", f"/v1/tasks/{task_id}")

    def find_task(self, id_or_name: str) -> Task:
        """A task by its id, or the newest of that name."""
        if id_or_name.startswith("tsk_"):
            return self.task(id_or_name)
        for task in self.tasks():
            if task.specification.name == id_or_name:
                return task
        raise NotFound(f"no task is called {id_or_name!r}; `coterie task list` shows those there are", status=404)

    def start_task(self, task_id: str) -> Task:
        """Starts a task that has enough devices."""
        return self.ask(Task, "POST", f"/v1/tasks/{task_id}/start")

    def cancel_task(self, task_id: str, why: str = "") -> Task:
        """Ends a task now."""
        return self.ask(Task, "POST", f"/v1/tasks/{task_id}/cancel", json={"why": why})

    def plan(self, task_id: str, version: int = 0) -> Plan:
        """A task's plan, the newest by default."""
        return self.ask(Plan, "GET", f"/v1/tasks/{task_id}/plan", params={"version": version})

    def enrol(self, task_id: str, device_id: str, *, samples: int, non_iid: float = 0.0) -> Enrolment:
        """Enrols a device; repeating it changes the samples."""
        body = {"samples": samples, "non_iid": non_iid}
        return self.ask(Enrolment, "PUT", f"/v1/tasks/{task_id}/enrolments/{device_id}", json=body)

    def withdraw(self, task_id: str, device_id: str) -> Enrolment:
        """Takes a device out of a task."""
        return self.ask(Enrolment, "DELETE", f"/v1/tasks/{task_id}/enrolments/{device_id}")

    def enrolments(self, task_id: str) -> Iterator[Enrolment]:
        """Devices of a task."""
        return self.pages(Enrolment, f"/v1/tasks/{task_id}/enrolments")

    def rounds(self, task_id: str, *, after: int = 0) -> Iterator[Round]:
        """Rounds of a task in order, those behind a number."""
        return self.pages(Round, f"/v1/tasks/{task_id}/rounds", cursor=str(after or ""))

    def round(self, task_id: str, number: int) -> RoundDetail:
        """A round with everybody in it."""
        return self.ask(RoundDetail, "GET", f"/v1/tasks/{task_id}/rounds/{number}")

    def prices(self, task_id: str, number: int) -> Quote:
        """What a round's participants were offered; a device sees its own offer."""
        return self.ask(Quote, "GET", f"/v1/tasks/{task_id}/rounds/{number}/prices")

    def participations(self, task_id: str, device_id: str) -> Iterator[Participation]:
        """One device's part in every round of a task, in order; `model_index` is its identity there."""
        return self.pages(Participation, f"/v1/tasks/{task_id}/devices/{device_id}/rounds")

    def events(self, task_id: str, *, after: int = 0, wait_seconds: float = 0.0) -> tuple[Event, ...]:
        """Events of a task after a number; waits for the first."""
        params = {"after": after, "wait": wait_seconds, "limit": PAGE_ITEMS}
        path = f"/v1/tasks/{task_id}/events"
        return self.ask(Items[Event], "GET", path, params=params, wait_seconds=wait_seconds).items

    def models(self, task_id: str) -> Iterator[Model]:
        """Model versions of a task, in order."""
        return self.pages(Model, f"/v1/tasks/{task_id}/models")

    def wait_for_end(self, task_id: str) -> Task:
        """The task once it has ended; sleeps on its event log."""
        after = 0
        while True:
            task = self.task(task_id)
            if task.state.has_ended:
                return task
            events = self.events(task_id, after=after, wait_seconds=WATCH_SECONDS)
            after = events[-1].number if events else after

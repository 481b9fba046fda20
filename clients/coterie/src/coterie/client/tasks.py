"""Tasks: models, enrolments, plans, rounds, events, prices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.client.rest import PAGE_ITEMS, RestClient, promised
from coterie.errors import Conflict, NotFound
from coterie.records import (
    BlobSweep,
    Contribution,
    Enrolment,
    Evaluation,
    EvaluationAnswer,
    Event,
    Items,
    Measurement,
    Model,
    Participation,
    Plan,
    Pruning,
    Quote,
    RegisteredModel,
    ReplayedRound,
    Round,
    RoundDetail,
    Task,
)

WATCH_SECONDS = 20.0
MOST_CHOICES = 10
REPLAY_ROUNDS = 5
"""Made again in one answer, so that none takes long."""


class Tasks(RestClient):
    """Tasks, from creation to results."""

    def upload_model(self, model: bytes | Path) -> str:
        """Stores an initial model (a safetensors file); its digest."""
        digest, content = promised(model)
        headers = {"Coterie-Digest": digest}
        return self.ask(RegisteredModel, "POST", "/v1/models", headers=headers, content=content, idempotent=True).digest

    def forget_model(self, digest: str) -> None:
        """Makes room in the uploader's quota; tasks that began with the model keep it."""
        self.request("DELETE", f"/v1/models/{digest}")

    def sweep_blobs(self, *, dry_run: bool = True, older_than_seconds: float = 86_400.0) -> BlobSweep:
        """Stored bytes that nothing refers to: found, and removed unless only looked for. For admins."""
        body = {"dry_run": dry_run, "older_than_seconds": older_than_seconds}
        return self.ask(BlobSweep, "POST", "/v1/blobs/sweep", json=body, idempotent=True, wait_seconds=600.0)

    def prune_tasks(
        self, *, dry_run: bool = True, older_than_seconds: float = 7_776_000.0, task_id: str = ""
    ) -> Pruning:
        """Details of tasks that ended long ago: counted, and forgotten unless only looked at. For admins."""
        body = {"dry_run": dry_run, "older_than_seconds": older_than_seconds, "task_id": task_id}
        return self.ask(Pruning, "POST", "/v1/tasks/prune", json=body, idempotent=True, wait_seconds=600.0)

    def download_model(self, digest: str, *, most_bytes: int | None = None) -> Path:
        """Path of a model in the cache, fetched and checked if it is not there; larger ones are broken off."""
        return self._download(f"/v1/models/{digest}", digest, most_bytes)

    def create_task(self, **specification: Any) -> Task:
        """A task; the same name and specification give the task that exists."""
        return self.ask(Task, "POST", "/v1/tasks", json=specification, idempotent=True)

    def tasks(self, *, state: str = "", publisher: str = "", name: str = "") -> Iterator[Task]:
        """Tasks the key's holder may see, newest first."""
        return self.pages(Task, "/v1/tasks", state=state, publisher=publisher, name=name)

    def task(self, task_id: str) -> Task:
        """One task."""
        return self.ask(Task, "GET", f"/v1/tasks/{task_id}")

    def find_task(self, id_or_name: str) -> Task:
        """A task by its id, or by its name when only one publisher has a task of that name."""
        if id_or_name.startswith("tsk_"):
            return self.task(id_or_name)
        # An older platform does not know the filter and answers with all.
        result = [task for task in self.tasks(name=id_or_name) if task.specification.name == id_or_name]
        if not result:
            raise NotFound(f"no task is called {id_or_name!r}; `coterie task list` shows those there are", status=404)
        if len(result) > 1:
            choices = ", ".join(f"{task.id} ({task.state}, of {task.publisher})" for task in result[:MOST_CHOICES])
            more = f" and {len(result) - MOST_CHOICES} more" if len(result) > MOST_CHOICES else ""
            raise Conflict(
                f"{len(result)} publishers have a task called {id_or_name!r}; give the id of the one you mean: "
                f"{choices}{more}",
                status=409,
            )
        return result[0]

    def start_task(self, task_id: str) -> Task:
        """Starts a task that has enough devices."""
        return self.ask(Task, "POST", f"/v1/tasks/{task_id}/start")

    def cancel_task(self, task_id: str, why: str = "") -> Task:
        """Ends a task now."""
        return self.ask(Task, "POST", f"/v1/tasks/{task_id}/cancel", json={"why": why})

    def plan(self, task_id: str, version: int = 0) -> Plan:
        """A task's plan, the newest by default."""
        return self.ask(Plan, "GET", f"/v1/tasks/{task_id}/plan", params={"version": version})

    def enrol(
        self,
        task_id: str,
        device_id: str,
        *,
        samples: int,
        non_iid: float = 0.0,
        clerks: Iterable[str] = (),
        no_clerk: bool = False,
        measures: bool = False,
        better: Mapping[str, str] | None = None,
    ) -> Enrolment:
        """Enrols a device; repeating it changes the samples."""
        body: dict[str, Any] = {"samples": samples, "non_iid": non_iid}
        optional = {"clerks": list(clerks), "no_clerk": no_clerk, "measures": measures, "better": dict(better or {})}
        body |= {name: value for name, value in optional.items() if value}  # older platforms know none of them
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
        """Get a round with all its participations."""
        return self.ask(RoundDetail, "GET", f"/v1/tasks/{task_id}/rounds/{number}")

    def prices(self, task_id: str, number: int) -> Quote:
        """What a round's participants were offered; a device sees its own offer."""
        return self.ask(Quote, "GET", f"/v1/tasks/{task_id}/rounds/{number}/prices")

    def participations(self, task_id: str, device_id: str, *, after: int = 0) -> Iterator[Participation]:
        """One device's part in the rounds of a task behind a number, in order; `model_index` is its identity there."""
        path = f"/v1/tasks/{task_id}/devices/{device_id}/rounds"
        return self.pages(Participation, path, cursor=str(after or ""))

    def events(self, task_id: str, *, after: int = 0, wait_seconds: float = 0.0) -> tuple[Event, ...]:
        """Events of a task after a number; waits for the first."""
        params = {"after": after, "wait": wait_seconds, "limit": PAGE_ITEMS}
        path = f"/v1/tasks/{task_id}/events"
        return self.ask(Items[Event], "GET", path, params=params, wait_seconds=wait_seconds).items

    def models(self, task_id: str) -> Iterator[Model]:
        """Model versions of a task, in order."""
        return self.pages(Model, f"/v1/tasks/{task_id}/models")

    def report_measurement(
        self, task_id: str, version: int, metrics: Mapping[str, float], *, line: int = 0, public: bool = False
    ) -> None:
        """Tells what a version measured: a device its own figures of the newest, a publisher those of any.

        `public`: they tell nothing of private data; where a task promises noise, a device's others are refused.
        """
        body = {"line": line, "metrics": dict(metrics), "public_metrics": public}
        self.request("PUT", f"/v1/tasks/{task_id}/models/{version}/measurement", json=body)

    def measurements(self, task_id: str, version: int, *, line: int = 0) -> Iterator[Measurement]:
        """What each device measured of a version; a device sees its own."""
        return self.pages(Measurement, f"/v1/tasks/{task_id}/models/{version}/measurements", line=line)

    def replay(self, task_id: str) -> Iterator[ReplayedRound]:
        """A task's rounds made again from their stored updates, beside what they made."""
        return self.pages(ReplayedRound, f"/v1/tasks/{task_id}/replay", limit=REPLAY_ROUNDS)

    def evaluation(self, task_id: str, *, wait_seconds: float = 0.0) -> Evaluation:
        """The next models of a task whose worth is asked for."""
        params = {"wait": wait_seconds}
        return self.ask(Evaluation, "GET", f"/v1/tasks/{task_id}/evaluation", params=params, wait_seconds=wait_seconds)

    def answer_evaluation(
        self, task_id: str, round: int, model_digest: str, worths: Sequence[float]
    ) -> EvaluationAnswer:
        """Tells what the models of a file are worth, in order."""
        body = {"model_digest": model_digest, "worths": list(worths)}
        path = f"/v1/tasks/{task_id}/rounds/{round}/evaluation"
        return self.ask(EvaluationAnswer, "POST", path, json=body, idempotent=True)

    def contributions(self, task_id: str, *, round: int = 0) -> Iterator[Contribution]:
        """What each device contributed to a round, or to all of them."""
        return self.pages(Contribution, f"/v1/tasks/{task_id}/contributions", round=round)

    def wait_for_end(self, task_id: str) -> Task:
        """The task once it has ended; sleeps on its event log."""
        after = 0
        while True:
            task = self.task(task_id)
            if task.state.has_ended:
                return task
            events = self.events(task_id, after=after, wait_seconds=WATCH_SECONDS)
            after = events[-1].number if events else after

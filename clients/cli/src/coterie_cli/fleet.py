"""Thousands of devices that only send: they register, poll and deliver random changes, to measure the platform alone.

One event loop drives them all; one cache holds the models. Devices that work as devices do are `coterie.agent.fleet`.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray
from safetensors.numpy import save as save_tensors

from coterie.agent.registration import registration_body
from coterie.agent.report import Delivery
from coterie.errors import CorruptDownload, Refused, RoundOver
from coterie.learning.tensor_files import load as load_tensors
from coterie.protocol.keys import DeviceKeys
from coterie.protocol.transport import Backoff
from coterie.records import RegisteredDevice, UpdateOutcome, Work, WorkItem
from coterie.strategies.context import round_seed
from coterie_cli.fleet_lines import Line, Place

POLL_SECONDS = 25.0
HEARTBEAT_SECONDS = 60.0
AT_ONCE = 64
KEPT_MODELS = 5
_GROUP = 8
Arrays: TypeAlias = dict[str, NDArray[np.floating[Any]]]


@dataclass(frozen=True, slots=True)
class Member:
    """One simulated device."""

    id: str
    name: str
    api_key: str = field(repr=False)
    samples: int = 1
    keys: DeviceKeys | None = field(default=None, repr=False)


class Worker(Protocol):
    """Makes a member's delivery from the round's model; called in a thread when `blocking`."""

    blocking: bool

    def deliver(self, member: Member, work: WorkItem, model: Arrays) -> Delivery:
        """The member's update of a round."""
        ...


class RandomWorker:
    """Sends small seeded noise: the cost of a round without any training."""

    blocking = False

    def __init__(self, seed: int = 0, scale: float = 1e-3) -> None:
        self._seed, self._scale = seed, scale

    def deliver(self, member: Member, work: WorkItem, model: Arrays) -> Delivery:
        """A random change, the same whenever seed, member and round are."""
        draw = np.random.Generator(np.random.SFC64(round_seed(self._seed, "fleet", work.round, member.name)))
        change = {  # by name, because a file's tensors are read in no fixed order
            name: (draw.standard_normal(model[name].shape) * self._scale).astype(model[name].dtype)
            for name in sorted(model)
        }
        return Delivery(change, float(member.samples))


@dataclass(slots=True)
class FleetSummary:
    """What became of a fleet's work: the task's state, deliveries by outcome, and requests made."""

    state: str = ""
    outcomes: dict[str, int] = field(default_factory=dict)
    requests: int = 0
    seconds: float = 0.0

    def count(self, outcome: str) -> None:
        """One more delivery with this outcome."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


class Fleet:
    """A fleet of members on one platform; use within one event loop."""

    def __init__(self, url: str, *, backoff: Backoff | None = None) -> None:
        self._url, self._backoff = url.rstrip("/"), backoff or Backoff(patience_seconds=120.0)
        self._lines: list[Line] = []
        self._models: LRUCache[str, asyncio.Task[Arrays]] = LRUCache(KEPT_MODELS)

    @asynccontextmanager
    async def open(self, members: int) -> AsyncIterator[Fleet]:
        """Connections for so many members, closed afterwards."""
        place = Place.of(self._url)
        self._lines = [Line(place, self._backoff) for _ in range(-(-members // _GROUP))]
        try:
            yield self
        finally:
            await asyncio.gather(*(line.close() for line in self._lines))

    async def register(self, token: str, names: Sequence[str], *, samples: int = 1) -> list[Member]:
        """Registers members with one token good for all of them."""

        async def one(index: int, name: str) -> Member:
            keys = DeviceKeys.generate()
            body = registration_body(keys, token, name, {"kind": "simulated"})
            answer = await self._line(index).send("POST", "/v1/devices", json=body, idempotent=True)
            made = RegisteredDevice.from_json(answer.said)
            return Member(made.device.id, name, made.api_key, samples, keys)

        return await _bounded([lambda i=i, name=name: one(i, name) for i, name in enumerate(names)])  # type: ignore[misc]

    async def enrol(self, task_id: str, members: Sequence[Member], **said: Any) -> None:
        """Enrols every member in a task; `said` is what each says of itself beside its samples."""

        async def one(index: int, member: Member) -> None:
            path = f"/v1/tasks/{task_id}/enrolments/{member.id}"
            body = {"samples": member.samples} | said
            await self._line(index).send("PUT", path, key=member.api_key, json=body)

        await _bounded([lambda i=i, member=member: one(i, member) for i, member in enumerate(members)])  # type: ignore[misc]

    async def run(
        self,
        task_id: str,
        members: Sequence[Member],
        worker: Worker,
        *,
        on_delivery: Callable[[Member, WorkItem, str], None] | None = None,
    ) -> FleetSummary:
        """Does all members' work until the task has ended."""
        summary, began = FleetSummary(), time.monotonic()
        beats = asyncio.create_task(self._beat(members))
        try:
            async with asyncio.TaskGroup() as group:
                for index, member in enumerate(members):
                    group.create_task(
                        self._serve(
                            self._line(index),
                            task_id,
                            member=member,
                            worker=worker,
                            summary=summary,
                            on_delivery=on_delivery,
                        )
                    )
        finally:
            beats.cancel()
        summary.seconds = time.monotonic() - began
        summary.requests = sum(line.requests for line in self._lines)
        return summary

    def _line(self, index: int) -> Line:
        return self._lines[index % len(self._lines)]

    async def _serve(
        self,
        line: Line,
        task_id: str,
        member: Member,
        worker: Worker,
        summary: FleetSummary,
        on_delivery: Callable[[Member, WorkItem, str], None] | None,
    ) -> None:
        params = {"wait": POLL_SECONDS, "task": task_id}
        while True:
            answer = await line.send("GET", "/v1/work", key=member.api_key, params=params, wait_seconds=POLL_SECONDS)
            work = Work.from_json(answer.said)
            if task_id in work.ended:
                summary.state = work.ended[task_id]
                return
            for item in work.items:
                outcome = await self._deliver(line, member, item, worker)
                summary.count(outcome)
                if on_delivery is not None:
                    on_delivery(member, item, outcome)
            if not work.items and work.retry_after_seconds > 0.0:
                await asyncio.sleep(work.retry_after_seconds * (1.0 + 0.2 * random.random()))

    async def _deliver(self, line: Line, member: Member, item: WorkItem, worker: Worker) -> str:
        model = await self._model(line, member, item.model_digests[0])
        if worker.blocking:
            delivery = await asyncio.to_thread(worker.deliver, member, item, model)
        else:
            delivery = worker.deliver(member, item, model)
        body = b"" if delivery.tensors is None else save_tensors(dict(delivery.tensors))
        headers = {"Coterie-Update": delivery.report(), "Coterie-Digest": hashlib.sha256(body).hexdigest()}
        path = f"/v1/tasks/{item.task_id}/rounds/{item.round}/updates/{member.id}"
        try:
            answer = await line.send("PUT", path, key=member.api_key, headers=headers, content=body)
        except RoundOver:
            return "late"
        except Refused as error:
            return error.reason
        return UpdateOutcome.from_json(answer.said).outcome

    async def _model(self, line: Line, member: Member, digest: str) -> Arrays:
        """The round's model, fetched by the first member that needs it."""
        fetching = self._models.get(digest)
        if fetching is None:
            fetching = self._models[digest] = asyncio.create_task(self._fetch(line, member, digest))
        try:
            return await asyncio.shield(fetching)
        except Exception:
            self._models.pop(digest, None)
            raise

    async def _fetch(self, line: Line, member: Member, digest: str) -> Arrays:
        answer = await line.send("GET", f"/v1/models/{digest}", key=member.api_key)
        if hashlib.sha256(answer.content).hexdigest() != digest:
            raise CorruptDownload(f"asked for model {digest[:12]}… and got other bytes")
        return load_tensors(answer.content)

    async def _beat(self, members: Sequence[Member]) -> None:
        """One heartbeat per member and minute, spread evenly."""
        while True:
            for index, member in enumerate(members):
                await asyncio.sleep(HEARTBEAT_SECONDS / len(members))
                path = f"/v1/devices/{member.id}/heartbeat"
                await self._line(index).send("POST", path, key=member.api_key, idempotent=True)


async def _bounded(jobs: Iterable[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Results of all jobs in order, `AT_ONCE` at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(job: Callable[[], Awaitable[Any]]) -> Any:
        async with gate:
            return await job()

    return list(await asyncio.gather(*(one(job) for job in jobs)))

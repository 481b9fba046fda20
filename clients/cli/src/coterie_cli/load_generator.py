"""Load generator: thousands of simulated devices that register, poll and send random updates from one event loop.

It measures the platform alone: its devices do not train, keep no ledger and write no letters, and they share one model
cache. For complete devices in one process use `coterie.agent.fleet`.
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
from coterie_cli.http_client import BaseUrl, HttpClient

POLL_SECONDS = 25.0
HEARTBEAT_SECONDS = 60.0
MOST_CONCURRENT = 64
CACHED_MODELS = 5
_DEVICES_PER_CLIENT = 8
Arrays: TypeAlias = dict[str, NDArray[np.floating[Any]]]


@dataclass(frozen=True, slots=True)
class SimulatedDevice:
    """One simulated device."""

    id: str
    name: str
    api_key: str = field(repr=False)
    samples: int = 1
    keys: DeviceKeys | None = field(default=None, repr=False)


class Worker(Protocol):
    """Makes a device's delivery from the model of a round; called in a thread when `blocking`."""

    blocking: bool

    def deliver(self, device: SimulatedDevice, work: WorkItem, model: Arrays) -> Delivery:
        """Make the device's update of a round."""
        ...


class RandomWorker:
    """Sends small random updates, to measure a round without training."""

    blocking = False

    def __init__(self, seed: int = 0, scale: float = 1e-3) -> None:
        self._seed, self._scale = seed, scale

    def deliver(self, device: SimulatedDevice, work: WorkItem, model: Arrays) -> Delivery:
        """Make a random change that depends on seed, device and round alone."""
        draw = np.random.Generator(np.random.SFC64(round_seed(self._seed, "fleet", work.round, device.name)))
        change = {  # sorted, because a file's tensors are read in no fixed order
            name: (draw.standard_normal(model[name].shape) * self._scale).astype(model[name].dtype)
            for name in sorted(model)
        }
        return Delivery(change, float(device.samples))


@dataclass(slots=True)
class LoadSummary:
    """State of the task, deliveries by outcome, number of requests and seconds of a run."""

    state: str = ""
    outcomes: dict[str, int] = field(default_factory=dict)
    requests: int = 0
    seconds: float = 0.0

    def count(self, outcome: str) -> None:
        """Count one delivery."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


class LoadGenerator:
    """Simulated devices on one platform; use within one event loop."""

    def __init__(self, url: str, *, backoff: Backoff | None = None) -> None:
        self._url, self._backoff = url.rstrip("/"), backoff or Backoff(patience_seconds=120.0)
        self._clients: list[HttpClient] = []
        self._models: LRUCache[str, asyncio.Task[Arrays]] = LRUCache(CACHED_MODELS)

    @asynccontextmanager
    async def open(self, devices: int) -> AsyncIterator[LoadGenerator]:
        """Open HTTP clients for `devices` devices and close them afterwards."""
        base = BaseUrl.parse(self._url)
        self._clients = [HttpClient(base, self._backoff) for _ in range(-(-devices // _DEVICES_PER_CLIENT))]
        try:
            yield self
        finally:
            await asyncio.gather(*(client.close() for client in self._clients))

    async def register(self, token: str, names: Sequence[str], *, samples: int = 1) -> list[SimulatedDevice]:
        """Register one device per name with one enrolment token."""

        async def one(index: int, name: str) -> SimulatedDevice:
            keys = DeviceKeys.generate()
            body = registration_body(keys, token, name, {"kind": "simulated"})
            response = await self._client(index).send("POST", "/v1/devices", json=body, idempotent=True)
            registered = RegisteredDevice.from_json(response.payload)
            return SimulatedDevice(registered.device.id, name, registered.api_key, samples, keys)

        return await _bounded([lambda i=i, name=name: one(i, name) for i, name in enumerate(names)])  # type: ignore[misc]

    async def enrol(self, task_id: str, devices: Sequence[SimulatedDevice], **fields: Any) -> None:
        """Enrol every device in a task; `fields` are further fields of each enrolment."""

        async def one(index: int, device: SimulatedDevice) -> None:
            path = f"/v1/tasks/{task_id}/enrolments/{device.id}"
            body = {"samples": device.samples} | fields
            await self._client(index).send("PUT", path, key=device.api_key, json=body)

        await _bounded([lambda i=i, device=device: one(i, device) for i, device in enumerate(devices)])  # type: ignore[misc]

    async def run(
        self,
        task_id: str,
        devices: Sequence[SimulatedDevice],
        worker: Worker,
        *,
        on_delivery: Callable[[SimulatedDevice, WorkItem, str], None] | None = None,
    ) -> LoadSummary:
        """Do the work of all devices until the task has ended."""
        summary, began = LoadSummary(), time.monotonic()
        heartbeats = asyncio.create_task(self._send_heartbeats(devices))
        try:
            async with asyncio.TaskGroup() as group:
                for index, device in enumerate(devices):
                    group.create_task(
                        self._serve(
                            self._client(index),
                            task_id,
                            device=device,
                            worker=worker,
                            summary=summary,
                            on_delivery=on_delivery,
                        )
                    )
        finally:
            heartbeats.cancel()
        summary.seconds = time.monotonic() - began
        summary.requests = sum(client.requests for client in self._clients)
        return summary

    def _client(self, index: int) -> HttpClient:
        return self._clients[index % len(self._clients)]

    async def _serve(
        self,
        client: HttpClient,
        task_id: str,
        device: SimulatedDevice,
        worker: Worker,
        summary: LoadSummary,
        on_delivery: Callable[[SimulatedDevice, WorkItem, str], None] | None,
    ) -> None:
        params = {"wait": POLL_SECONDS, "task": task_id}
        while True:
            response = await client.send(
                "GET", "/v1/work", key=device.api_key, params=params, wait_seconds=POLL_SECONDS
            )
            work = Work.from_json(response.payload)
            if task_id in work.ended:
                summary.state = work.ended[task_id]
                return
            for item in work.items:
                outcome = await self._deliver(client, device, item, worker)
                summary.count(outcome)
                if on_delivery is not None:
                    on_delivery(device, item, outcome)
            if not work.items and work.retry_after_seconds > 0.0:
                await asyncio.sleep(work.retry_after_seconds * (1.0 + 0.2 * random.random()))

    async def _deliver(self, client: HttpClient, device: SimulatedDevice, item: WorkItem, worker: Worker) -> str:
        model = await self._model(client, device, item.model_digests[0])
        if worker.blocking:
            delivery = await asyncio.to_thread(worker.deliver, device, item, model)
        else:
            delivery = worker.deliver(device, item, model)
        body = b"" if delivery.tensors is None else save_tensors(dict(delivery.tensors))
        headers = {"Coterie-Update": delivery.report(), "Coterie-Digest": hashlib.sha256(body).hexdigest()}
        path = f"/v1/tasks/{item.task_id}/rounds/{item.round}/updates/{device.id}"
        try:
            response = await client.send("PUT", path, key=device.api_key, headers=headers, content=body)
        except RoundOver:
            return "late"
        except Refused as error:
            return error.reason
        return UpdateOutcome.from_json(response.payload).outcome

    async def _model(self, client: HttpClient, device: SimulatedDevice, digest: str) -> Arrays:
        """Return the round's model; the first device that needs it downloads it."""
        fetching = self._models.get(digest)
        if fetching is None:
            fetching = self._models[digest] = asyncio.create_task(self._fetch(client, device, digest))
        try:
            return await asyncio.shield(fetching)
        except Exception:
            self._models.pop(digest, None)
            raise

    async def _fetch(self, client: HttpClient, device: SimulatedDevice, digest: str) -> Arrays:
        response = await client.send("GET", f"/v1/models/{digest}", key=device.api_key)
        if hashlib.sha256(response.content).hexdigest() != digest:
            raise CorruptDownload(f"the download of model {digest[:12]}… does not match its digest; run again")
        return load_tensors(response.content)

    async def _send_heartbeats(self, devices: Sequence[SimulatedDevice]) -> None:
        """Send one heartbeat per device and minute, spread evenly."""
        while True:
            for index, device in enumerate(devices):
                await asyncio.sleep(HEARTBEAT_SECONDS / len(devices))
                path = f"/v1/devices/{device.id}/heartbeat"
                await self._client(index).send("POST", path, key=device.api_key, idempotent=True)


async def _bounded(jobs: Iterable[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Run all jobs, at most `MOST_CONCURRENT` at a time; return results in order."""
    slots = asyncio.Semaphore(MOST_CONCURRENT)

    async def one(job: Callable[[], Awaitable[Any]]) -> Any:
        async with slots:
            return await job()

    return list(await asyncio.gather(*(one(job) for job in jobs)))

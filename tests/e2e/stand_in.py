"""A stand-in for the platform: a real HTTP server on loopback that runs star rounds in memory, and can misbehave.

For tests of the device's side alone; what the real platform does is tested against the real platform.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import uvicorn
from safetensors.numpy import load, save
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from coterie.records import Device, Enrolment, RegisteredDevice, Task, TaskSpecification, WorkItem
from coterie_cli.processes import free_ports
from tests.answers import made

DEVICE_ID = "dev_1"
TASK_ID = "tsk_1"


@dataclass
class StandIn:
    """One task among `devices` devices; `faults` maps "METHOD route" to answers given before the real one."""

    model: bytes
    rounds: int = 2
    devices: int = 1
    work: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    promised: dict[str, Any] = field(default_factory=dict)
    faults: dict[str, list[Response]] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    updates: dict[tuple[int, str], list[bytes]] = field(default_factory=dict)
    reports: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    declined: list[tuple[int, str]] = field(default_factory=list)
    registered: dict[str, str] = field(default_factory=dict)
    enrolled: dict[str, int] = field(default_factory=dict)
    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    beats: int = 0
    round: int = 1
    port: int = field(default_factory=lambda: free_ports(1)[0])

    def __post_init__(self) -> None:
        self.blobs = {hashlib.sha256(self.model).hexdigest(): self.model}
        self.newest = next(iter(self.blobs))
        self._settled: set[tuple[int, str]] = set()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> StandIn:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Serves from a thread; returns when it answers."""
        config = uvicorn.Config(self._app(), host="127.0.0.1", port=self.port, log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        """Stops at once, cutting long polls."""
        assert self._server is not None
        assert self._thread is not None
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    def answered(self, method: str, path: str) -> int:
        """How many requests came for a path."""
        return sum(seen[:2] == (method, path) for seen in self.requests)

    # --- routes ------------------------------------------------------------------------------------------------------

    def _app(self) -> Starlette:
        update = "/v1/tasks/{task}/rounds/{round:int}/updates/{device}"
        routes = [
            self._route("POST", "/v1/devices", self._register),
            self._route("GET", "/v1/devices/{device}/keys", self._known),
            self._route("GET", "/v1/tasks", self._tasks),
            self._route("GET", "/v1/tasks/{task}", self._task),
            self._route("PUT", "/v1/tasks/{task}/enrolments/{device}", self._enrol),
            self._route("GET", "/v1/work", self._work),
            self._route("GET", "/v1/models/{digest}", self._download),
            self._route("PUT", update, self._put_update),
            self._route("POST", "/v1/tasks/{task}/rounds/{round:int}/decline", self._decline),
            self._route("POST", "/v1/devices/{device}/heartbeat", self._beat),
        ]
        return Starlette(routes=routes)

    def _route(self, method: str, path: str, answer: Callable[[Request], Awaitable[Response]]) -> Route:
        async def endpoint(request: Request) -> Response:
            self.requests.append((method, request.url.path, dict(request.headers)))
            waiting = self.faults.get(f"{method} {path}")
            if waiting:
                fault = waiting.pop(0)  # taken before anything is awaited: the next request may be here already
                await request.body()
                return fault
            return await answer(request)

        return Route(path, endpoint, methods=[method])

    async def _known(self, request: Request) -> Response:
        return JSONResponse(self.known[request.path_params["device"]])

    async def _register(self, request: Request) -> Response:
        body = await request.json()
        device = self.registered.setdefault(body["signing_key"], f"dev_{len(self.registered) + 1}")
        result = made(Device, id=device, name=body["name"], owner_id="own_1")
        return JSONResponse(made(RegisteredDevice, device=result, api_key=f"ck_{device}.x").to_dict(), 201)

    def _document(self) -> dict[str, Any]:
        specification = made(TaskSpecification, name="tiny", seed=7, privacy=self.work.get("privacy", "none"))
        specification = replace(specification, rounds=self.rounds, parameters=self.promised)
        return made(Task, id=TASK_ID, specification=specification, state=self._state()).to_dict()

    def _state(self) -> str:
        return "finished" if self.round > self.rounds else "running"

    async def _tasks(self, request: Request) -> Response:
        return JSONResponse({"items": [self._document()], "next_cursor": ""})

    async def _task(self, request: Request) -> Response:
        return JSONResponse(self._document())

    async def _enrol(self, request: Request) -> Response:
        self.enrolled[request.path_params["device"]] = (await request.json())["samples"]
        return JSONResponse(made(Enrolment).to_dict())

    async def _work(self, request: Request) -> Response:
        device = request.headers["authorization"].removeprefix("Bearer ck_").removesuffix(".x")
        deadline = time.monotonic() + float(request.query_params["wait"])
        while time.monotonic() < deadline:
            if self.round > self.rounds:
                return JSONResponse({"items": [], "retry_after_seconds": 0.0, "ended": {TASK_ID: "finished"}})
            if len(self.enrolled) >= self.devices and (self.round, device) not in self._settled:
                return JSONResponse({"items": [self._item()], "retry_after_seconds": 0.0, "ended": {}})
            await asyncio.sleep(0.005)
        return JSONResponse({"items": [], "retry_after_seconds": 0.0, "ended": {}})

    def _item(self) -> dict[str, Any]:
        item = made(WorkItem).to_dict()
        item |= {"task_id": TASK_ID, "round": self.round, "attempt": 1, "role": "solo", "plan_version": 1}
        item |= {"model_digests": [self.newest], "model_lines": [0], "previous_digests": []}
        item |= {"deadline_at": time.time() + 60, "training": self.training, "parameters": {}, "privacy_unit": "device"}
        item |= {"topology": "star", "privacy": "none", "incentive": "none", "rounds": self.rounds}
        return item | {"max_update_bytes": 1 << 20} | self.work

    async def _download(self, request: Request) -> Response:
        return Response(self.blobs[request.path_params["digest"]], media_type="application/octet-stream")

    async def _put_update(self, request: Request) -> Response:
        body, number, device = await request.body(), request.path_params["round"], request.path_params["device"]
        if hashlib.sha256(body).hexdigest() != request.headers["coterie-digest"]:
            return problem(400, "digest_mismatch", "other bytes came")
        self.updates.setdefault((number, device), []).append(body)
        self.reports[number, device] = json.loads(request.headers["coterie-update"])
        if number != self.round:
            return JSONResponse({"outcome": "late", "round": self.round})
        repeated = (number, device) in self._settled
        self._settle(number, device)
        return JSONResponse({"outcome": "repeated" if repeated else "accepted", "round": self.round})

    async def _decline(self, request: Request) -> Response:
        device = request.headers["authorization"].removeprefix("Bearer ck_").removesuffix(".x")
        self.declined.append((request.path_params["round"], (await request.json())["why"]))
        self._settle(request.path_params["round"], device)
        return Response(status_code=204)

    async def _beat(self, request: Request) -> Response:
        self.beats += 1
        return Response(status_code=204)

    def _settle(self, number: int, device: str) -> None:
        self._settled.add((number, device))
        if sum(settled[0] == number for settled in self._settled) < self.devices:
            return
        given = [(load(self.updates[key][-1]), self.reports[key]["weight"]) for key in self.updates if key[0] == number]
        if given:
            total = sum(weight for _, weight in given)
            model = load(self.blobs[self.newest])
            for name in model:
                mean = sum(tensors[name].astype(np.float64) * weight for tensors, weight in given) / total
                model[name] = (model[name] + mean).astype(model[name].dtype)
            content = save({name: np.asarray(value) for name, value in model.items()})
            self.newest = hashlib.sha256(content).hexdigest()
            self.blobs[self.newest] = content
        self.round += 1


def problem(status: int, reason: str, detail: str = "no", **headers: str) -> Response:
    """A refusal as the platform words them."""
    document = {"status": status, "reason": reason, "detail": detail, "request_id": "req", "details": {}}
    return Response(json.dumps(document), status, headers, "application/problem+json")

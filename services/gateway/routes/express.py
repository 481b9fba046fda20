"""The short way of what every device says again and again: that it is there, that it wants work, here is an update.

A request passes a dozen layers of framework before its route is called, which costs these more than what they ask.
Here the plain form of each is recognised, and its route is called with what was read. Whatever is not plain, and every
other request, goes the long way, which knows all forms and says what is wrong. Who may come in, and what is answered,
is decided by the same code on both ways.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.gateway.access.guard import StrictRequest, admit
from services.gateway.access.table import ACCESS
from services.gateway.routes import devices, updates, work
from services.gateway.routes.base import Dependencies
from services.gateway.wire.responses import refuse
from services.kit.errors import CoterieError

_ID = r"[A-Za-z0-9_.:-]{1,128}"
_WORK = re.compile(rf"^wait=([12]?\d|30)(?:\.0)?((?:&task={_ID}){{0,100}})\Z".encode())
_UPDATE = re.compile(rf"^/v1/tasks/({_ID})/rounds/([1-9]\d{{0,8}})/updates/({_ID})\Z")
_BEAT = re.compile(rf"^/v1/devices/({_ID})/heartbeat\Z")
Call = Callable[[StrictRequest, Dependencies], Awaitable[Response]]


class Express:
    """Serves what it knows; `serve` says whether it did."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        named = {route.name: route for route in app.router.routes if isinstance(route, APIRoute)}
        self._work, self._update, self._beat = named["get_work"], named["put_update"], named["heartbeat"]

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answers a plain request of the three; False, and nothing has happened, for any other."""
        found = self._read(scope)
        if found is None:
            return False
        route, call = found
        scope["route"] = route
        request = StrictRequest(scope, receive)
        try:
            await admit(request, ACCESS[route.name], route.name)
            response = await call(request, self._app.state.dependencies)
        except CoterieError as error:
            response = await refuse(request, error)
        await response(scope, receive, send)
        return True

    def _read(self, scope: Scope) -> tuple[APIRoute, Call] | None:
        """The route of a plain request and how it is called."""
        method, path, query = scope["method"], scope["path"], scope["query_string"]
        if method == "GET" and path == "/v1/work":
            asked = _WORK.match(query)
            return None if asked is None else (self._work, _asking(asked))
        if method == "PUT" and not query and (place := _UPDATE.match(path)) is not None:
            return self._deliver(scope, place)
        if method == "POST" and not query and (place := _BEAT.match(path)) is not None:
            scope["path_params"] = {"device_id": place[1]}
            return self._beat, _beating(place[1])
        return None

    def _deliver(self, scope: Scope, place: re.Match[str]) -> tuple[APIRoute, Call] | None:
        told = [value for name, value in scope["headers"] if name == b"coterie-update"]
        digests = [value for name, value in scope["headers"] if name == b"coterie-digest"]
        if len(told) != 1 or len(digests) != 1:
            return None
        task, number, device = place[1], int(place[2]), place[3]
        scope["path_params"] = {"task_id": task, "number": number, "device_id": device}

        async def call(request: StrictRequest, parts: Dependencies) -> Response:
            said = (told[0].decode("latin-1"), digests[0].decode("latin-1"))
            return await updates.put_update(request, task, number, device, parts, *said)

        return self._update, call


def _beating(device: str) -> Call:
    async def call(_: StrictRequest, parts: Dependencies) -> Response:
        return await devices.heartbeat(device, parts)

    return call


def _asking(asked: re.Match[bytes]) -> Call:
    wait, tasks = float(asked[1]), [each.decode() for each in asked[2].split(b"&task=")[1:]]

    async def call(request: StrictRequest, parts: Dependencies) -> Response:
        return await work.get_work(request, parts, wait, tasks)

    return call

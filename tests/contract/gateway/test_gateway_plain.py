"""Plain routes answer every request, sound or not, as FastAPI would, and ask services the same."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import Route

from coterie_api.aggregation.v1 import aggregation_pb2
from coterie_api.enums.v1 import enums_pb2 as words
from services.gateway.app import build
from services.gateway.wire.plain_routes import PLAIN, PlainEndpoint, declared
from tests.contract.gateway.conftest import bearer
from tests.contract.gateway.fakes import FakePlatform

BODY = b"an update"
DIGEST = hashlib.sha256(BODY).hexdigest()
UPDATE = "/v1/tasks/tsk_1/rounds/2/updates/dev_1"
HEADERS = {"Coterie-Update": '{"form": "mean", "weight": 3}', "Coterie-Digest": DIGEST}
WORK = [
    "/v1/work?wait=0",
    "/v1/work?wait=0.0&task=tsk_1",
    "/v1/work?wait=0&task=tsk_1&task=tsk_2",
    "/v1/work",
    "/v1/work?task=tsk_1",
    "/v1/work?task=tsk_1&wait=0",
    "/v1/work?wait=0.5",
    "/v1/work?wait=-1",
    "/v1/work?wait=31",
    "/v1/work?wait=nan",
    "/v1/work?wait=",
    "/v1/work?wait=0&wait=1",
    "/v1/work?wait=0&task=",
    "/v1/work?wait=0&clerk=true",
    "/v1/work?clerk=maybe",
    "/v1/work?wait=31&task=a%20b",
    "/v1/work?wait=0&task=a%20b",
    "/v1/work?wait=0&task=%00",
    "/v1/work?wait=0&task=" + "x" * 129,
    "/v1/work?wait=0" + "&task=tsk_1" * 101,
    "/v1/work/?wait=0",
]
UPDATES: list[tuple[str, dict[str, str]]] = [
    (UPDATE, HEADERS),
    (UPDATE, HEADERS | {"Coterie-Update": '{"form": "report"}'}),
    (UPDATE, HEADERS | {"Coterie-Update": "no JSON"}),
    (UPDATE, HEADERS | {"Coterie-Update": '{"form": "mean", "weight": "heavy"}'}),
    (UPDATE, HEADERS | {"Coterie-Update": '{"unknown": "field"}'}),
    (UPDATE, HEADERS | {"Coterie-Update": ""}),
    (UPDATE, HEADERS | {"Coterie-Digest": "0" * 64}),
    (UPDATE, HEADERS | {"Coterie-Digest": "short"}),
    (UPDATE, {"Coterie-Update": HEADERS["Coterie-Update"]}),
    (UPDATE, {"Coterie-Digest": DIGEST}),
    (UPDATE + "?x=1", HEADERS),
    (UPDATE + "/", HEADERS),
    ("/v1/tasks/tsk_1/rounds/0/updates/dev_1", HEADERS),
    ("/v1/tasks/tsk_1/rounds/02/updates/dev_1", HEADERS),
    ("/v1/tasks/tsk_1/rounds/2147483648/updates/dev_1", HEADERS),
    ("/v1/tasks/tsk_1/rounds/two/updates/dev_1", HEADERS),
    ("/v1/tasks/tsk 1/rounds/2/updates/dev_1", HEADERS),
    ("/v1/tasks/tsk%001/rounds/2/updates/dev_1", HEADERS),
    ("/v1/tasks/tsk_1/rounds/2/updates/dev_2", HEADERS),
    ("/v1/tasks/tsk_1/rounds/2/updates/dev_1%0A", HEADERS),
]
BEATS = [
    "/v1/devices/dev_1/heartbeat",
    "/v1/devices/dev_2/heartbeat",
    "/v1/devices/dev_1/heartbeat?x=1",
    "/v1/devices/dev_1/heartbeat/",
    "/v1/devices/dev_1/heartbeat%0A",
    "/v1/devices/dev%0A/heartbeat",
    "/v1/devices/dev%001/heartbeat",
    "/v1/devices/a%20b/heartbeat",
    f"/v1/devices/{'x' * 129}/heartbeat",
]


@pytest.fixture(autouse=True)
def _replies(platform: FakePlatform) -> None:
    item = aggregation_pb2.WorkItem(task_id="tsk_1", round=2)
    platform.replies["GetWork"] = aggregation_pb2.GetWorkReply(items=[item])
    platform.replies["SubmitUpdate"] = aggregation_pb2.SubmitUpdateReply(outcome=words.RECEPTION_ACCEPTED, round=2)


@pytest.fixture
async def fastapi_client(app: FastAPI, platform: FakePlatform, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the same gateway without plain routes."""
    other = build(platform.settings(tmp_path, max_json_bytes=4096))
    other.router.routes[:] = declared(other.router.routes)
    other.state.dependencies = app.state.dependencies
    async with httpx.AsyncClient(transport=httpx.ASGITransport(other), base_url="http://gateway") as client:
        yield client


Ask = Callable[..., Awaitable[tuple[Any, Any]]]


@pytest.fixture
def ask_both(client: httpx.AsyncClient, fastapi_client: httpx.AsyncClient, platform: FakePlatform) -> Ask:
    """Status, content and upstream calls of a request by a plain route and by FastAPI."""

    async def ask(*request: Any, **named: Any) -> tuple[Any, Any]:
        outcomes = []
        for side in (client, fastapi_client):
            platform.calls.clear()
            response = await side.request(*request, **named)
            content = response.json() if response.content else {}
            if "problem" in response.headers.get("content-type", ""):
                content["request_id"] = ""
            calls = [(call.method, call.request.SerializeToString(deterministic=True)) for call in platform.calls]
            calls = sorted(call for call in calls if call[0] != "Authenticate")
            outcomes.append((response.status_code, content, calls))
        return outcomes[0], outcomes[1]

    return ask


@pytest.mark.parametrize("role", ["device", "publisher", "stranger"])
async def test_plain_work_equals_fastapi(ask_both: Ask, role: str) -> None:
    for path in WORK:
        plain, full = await ask_both("GET", path, headers=bearer(role))
        assert plain == full, path
        assert (plain[0] == 200) is bool(plain[2]), path


@pytest.mark.parametrize("role", ["device", "admin", "stranger"])
async def test_plain_update_equals_fastapi(ask_both: Ask, role: str) -> None:
    for path, headers in UPDATES:
        options = {"headers": headers | bearer(role), "content": BODY}
        plain, full = await ask_both("PUT", path, **options)
        assert plain == full, (path, headers)


@pytest.mark.parametrize("role", ["device", "admin", "stranger"])
async def test_plain_heartbeat_equals_fastapi(ask_both: Ask, role: str) -> None:
    for path in BEATS:
        for content in (b"", b"{}", b"no JSON"):
            plain, full = await ask_both("POST", path, headers=bearer(role), content=content)
            assert plain == full, path
            assert (plain[0] == 204) is bool(plain[2]), path


def test_plain_routes_serve_their_declared_methods_only(app: FastAPI) -> None:
    routes = [r for r in app.router.routes if isinstance(r, Route) and isinstance(r.endpoint, PlainEndpoint)]
    assert {route.name for route in routes} == PLAIN
    assert {method for route in routes for method in route.methods or ()} == {"GET", "PUT", "POST"}


@pytest.mark.parametrize("method", ["HEAD", "DELETE", "OPTIONS"])
async def test_other_methods_are_refused_as_by_fastapi(ask_both: Ask, method: str) -> None:
    for path in ("/v1/work", UPDATE, "/v1/devices/dev_1/heartbeat"):
        plain, full = await ask_both(method, path, headers=bearer("device"))
        assert plain == full
        assert plain[0] == 405

"""The short way of the busiest requests: whatever comes is answered as on the long way, and asks services the same."""

from __future__ import annotations

import hashlib
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from coterie_api.aggregation.v1 import aggregation_pb2
from coterie_api.enums.v1 import enums_pb2 as words
from services.gateway.routes.express import Express
from tests.contract.gateway.conftest import bearer
from tests.contract.gateway.fakes import FakePlatform

BODY = b"an update"
DIGEST = hashlib.sha256(BODY).hexdigest()
UPDATE = "/v1/tasks/tsk_1/rounds/2/updates/dev_1"
PLAIN = {"Coterie-Update": '{"form": "mean", "weight": 3}', "Coterie-Digest": DIGEST}
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
    "/v1/work?wait=0&task=a%20b",
    "/v1/work?wait=0&task=%00",
    "/v1/work?wait=0&task=" + "x" * 129,
    "/v1/work?wait=0" + "&task=tsk_1" * 101,
    "/v1/work/?wait=0",
]
UPDATES: list[tuple[str, dict[str, str]]] = [
    (UPDATE, PLAIN),
    (UPDATE, PLAIN | {"Coterie-Update": '{"form": "report"}'}),
    (UPDATE, PLAIN | {"Coterie-Update": "no JSON"}),
    (UPDATE, PLAIN | {"Coterie-Update": '{"form": "mean", "weight": "heavy"}'}),
    (UPDATE, PLAIN | {"Coterie-Update": '{"nobody": "knows"}'}),
    (UPDATE, PLAIN | {"Coterie-Update": ""}),
    (UPDATE, PLAIN | {"Coterie-Digest": "0" * 64}),
    (UPDATE, PLAIN | {"Coterie-Digest": "short"}),
    (UPDATE, {"Coterie-Update": PLAIN["Coterie-Update"]}),
    (UPDATE, {"Coterie-Digest": DIGEST}),
    (UPDATE + "?x=1", PLAIN),
    (UPDATE + "/", PLAIN),
    ("/v1/tasks/tsk_1/rounds/0/updates/dev_1", PLAIN),
    ("/v1/tasks/tsk_1/rounds/02/updates/dev_1", PLAIN),
    ("/v1/tasks/tsk_1/rounds/2147483648/updates/dev_1", PLAIN),
    ("/v1/tasks/tsk_1/rounds/two/updates/dev_1", PLAIN),
    ("/v1/tasks/tsk 1/rounds/2/updates/dev_1", PLAIN),
    ("/v1/tasks/tsk%001/rounds/2/updates/dev_1", PLAIN),
    ("/v1/tasks/tsk_1/rounds/2/updates/dev_2", PLAIN),
    ("/v1/tasks/tsk_1/rounds/2/updates/dev_1%0A", PLAIN),
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


async def both_ways(client: httpx.AsyncClient, platform: FakePlatform, *request: Any, **named: Any) -> tuple[Any, Any]:
    """Status, answer and calls of a request on the short way and on the long one."""
    found = []
    for read in (Express._read, lambda *_: None):
        platform.calls.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Express, "_read", read)
            answer = await client.request(*request, **named)
        said = answer.json() if answer.content else {}
        if "problem" in answer.headers.get("content-type", ""):
            said["request_id"] = ""
        asked = [(call.method, call.request.SerializeToString(deterministic=True)) for call in platform.calls]
        found.append((answer.status_code, said, sorted(each for each in asked if each[0] != "Authenticate")))
    return found[0], found[1]


@pytest.mark.parametrize("role", ["device", "publisher", "nobody"])
async def test_work_is_asked_for_alike_on_both_ways(
    client: httpx.AsyncClient, platform: FakePlatform, role: str
) -> None:
    for path in WORK:
        short, long = await both_ways(client, platform, "GET", path, headers=bearer(role))
        assert short == long, path
        assert (short[0] == 200) is bool(short[2]), path


@pytest.mark.parametrize("role", ["device", "admin", "nobody"])
async def test_updates_are_handed_in_alike_on_both_ways(
    client: httpx.AsyncClient, platform: FakePlatform, role: str
) -> None:
    for path, headers in UPDATES:
        told = {"headers": headers | bearer(role), "content": BODY}
        short, long = await both_ways(client, platform, "PUT", path, **told)
        assert short == long, (path, headers)


@pytest.mark.parametrize("role", ["device", "admin", "nobody"])
async def test_heartbeats_are_taken_alike_on_both_ways(
    client: httpx.AsyncClient, platform: FakePlatform, role: str
) -> None:
    for path in BEATS:
        for content in (b"", b"{}", b"no JSON"):
            short, long = await both_ways(client, platform, "POST", path, headers=bearer(role), content=content)
            assert short == long, path
            assert (short[0] == 204) is bool(short[2]), path


async def test_plain_requests_take_short_way_and_are_measured_under_their_route(
    client: httpx.AsyncClient, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    read = Express._read

    def noted(self: Express, scope: Any) -> Any:
        found = read(self, scope)
        taken.append(found[0].path if found is not None else "")
        return found

    monkeypatch.setattr(Express, "_read", noted)
    await client.get("/v1/work", params={"wait": 25.0, "task": "tsk_1"}, headers=bearer("device"))
    await client.put(UPDATE, headers=PLAIN | bearer("device"), content=BODY)
    await client.post("/v1/devices/dev_1/heartbeat", headers=bearer("device"))
    await client.get("/v1/me", headers=bearer("device"))
    update, beat = "/v1/tasks/{task_id}/rounds/{number}/updates/{device_id}", "/v1/devices/{device_id}/heartbeat"
    assert taken == ["/v1/work", update, beat, ""]

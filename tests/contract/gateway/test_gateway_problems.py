"""Every refusal is problem+json with a stable reason, and says what to do."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from coterie.records import Problem
from services.gateway.app import build
from services.gateway.wire.responses import INTERNAL_ERROR_TEXT, STATUS_OF_KIND, TITLE_OF_STATUS
from services.kit import errors
from services.kit.rpc.grpc_errors import STATUS_OF_KIND as GRPC_STATUS_OF_KIND
from tests.contract.gateway.conftest import bearer
from tests.contract.gateway.fakes import FakePlatform

ADMIN = bearer("admin")


def _problem(answer: httpx.Response) -> Problem:
    assert answer.headers["content-type"] == "application/problem+json"
    problem = Problem.from_json(answer.json())
    assert problem.status == answer.status_code
    assert problem.request_id == answer.headers["x-request-id"]
    assert problem.type == f"urn:coterie:problem:{problem.reason}"
    return problem


def test_every_kind_of_error_has_a_status_and_every_status_a_title() -> None:
    assert set(STATUS_OF_KIND) == set(GRPC_STATUS_OF_KIND)
    assert set(STATUS_OF_KIND.values()) <= set(TITLE_OF_STATUS)


@pytest.mark.parametrize("kind", list(STATUS_OF_KIND))
async def test_a_services_error_keeps_its_reason_message_and_details(
    client: httpx.AsyncClient, platform: FakePlatform, kind: type[errors.CoterieError]
) -> None:
    error = type("OddThing", (kind,), {})("do it otherwise", details={"index": "3"})
    platform.replies["GetTask"] = error
    answer = await client.get("/v1/tasks/tsk_1", headers=ADMIN)
    problem = _problem(answer)
    assert problem.status == STATUS_OF_KIND[kind]
    assert (problem.reason, problem.detail, problem.details) == ("odd_thing", "do it otherwise", {"index": "3"})
    assert ("retry-after" in answer.headers) == (kind is errors.Unavailable)


async def test_an_unforeseen_fault_of_a_service_says_nothing_of_its_inside(
    client: httpx.AsyncClient, platform: FakePlatform
) -> None:
    platform.replies["GetTask"] = RuntimeError("password is hunter2")
    problem = _problem(await client.get("/v1/tasks/tsk_1", headers=ADMIN))
    assert (problem.status, problem.reason, problem.detail) == (500, "internal", INTERNAL_ERROR_TEXT)


async def test_an_unforeseen_fault_of_the_gateway_is_answered_too(app: FastAPI, client: httpx.AsyncClient) -> None:
    app.state.dependencies = None
    problem = _problem(await client.get("/v1/me", headers=ADMIN | {"X-Request-Id": "find-me"}))
    assert (problem.status, problem.reason, problem.request_id) == (500, "internal", "find-me")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"sharing": "own"}', "body.name"),
        (b'{"name": "", "sharing": "own"}', "body.name"),
        (b'{"name": "a", "sharing": "none"}', "body.sharing"),
        (b'{"name": "a", "colour": "red"}', "body.colour"),
        (b'{"name": NaN}', "body"),
        (b'{"name": "a\\u0000b"}', "body"),
        (b'{"name": "\\ud800"}', "body"),
        (b"{", "body"),
        (b"\xff\xfe", "body"),
        (b"[]", "body"),
        (b"", "body"),
    ],
)
async def test_a_body_that_does_not_fit_is_400_and_names_the_field(
    client: httpx.AsyncClient, platform: FakePlatform, body: bytes, field: str
) -> None:
    headers = ADMIN | {"Content-Type": "application/json"}
    problem = _problem(await client.post("/v1/owners", headers=headers, content=body))
    assert (problem.status, problem.reason) == (400, "invalid_input")
    assert str(problem.details["field"]).startswith(field)
    assert platform.called("CreateOwner") == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/owners?limit=0",
        "/v1/owners?limit=501",
        "/v1/owners?limit=x",
        "/v1/trust/losses?since=nan",
        "/v1/trust/losses?since=inf",
        "/v1/trust/losses?since=-1",
        "/v1/trust/graph?format=pickle",
        "/v1/tasks/tsk_1/rounds/0",
        "/v1/tasks/tsk_1/rounds/2147483648",
        "/v1/tasks/tsk_1/events?wait=31",
        "/v1/devices/a%20b",
        "/v1/devices/%00",
        "/v1/audit?subject=%00",
        "/v1/owners?cursor=%00",
        "/v1/models/abc",
        "/v1/privacy/dev_1?delta=1",
    ],
)
async def test_a_path_or_query_that_does_not_fit_is_400(client: httpx.AsyncClient, path: str) -> None:
    assert _problem(await client.get(path, headers=ADMIN)).status == 400


async def test_unknown_paths_and_methods_are_problems_too(client: httpx.AsyncClient) -> None:
    lost = _problem(await client.get("/v1/nothing"))
    assert (lost.status, lost.reason) == (404, "unknown_path")
    answer = await client.put("/v1/me")
    assert (_problem(answer).reason, answer.headers["allow"]) == ("method_not_allowed", "GET")


@pytest.mark.parametrize("known_length", [True, False])
async def test_a_json_body_over_the_limit_is_413(client: httpx.AsyncClient, known_length: bool) -> None:
    async def pieces() -> object:
        for _ in range(5):
            yield b" " * 1000

    content = b" " * 5000 if known_length else pieces()
    headers = ADMIN | {"Content-Type": "application/json"}
    problem = _problem(await client.post("/v1/owners", headers=headers, content=content))  # type: ignore[arg-type]
    assert (problem.status, problem.reason, problem.details) == (413, "body_too_large", {"limit_bytes": "4096"})


async def test_a_request_id_is_kept_when_sound_and_made_when_not(client: httpx.AsyncClient) -> None:
    retained = await client.get("/health/live", headers={"X-Request-Id": "job-7"})
    assert retained.headers["x-request-id"] == "job-7"
    made = await client.get("/health/live", headers={"X-Request-Id": "bad id\t!"})
    assert made.headers["x-request-id"] not in ("", "bad id\t!")


async def test_ready_says_which_service_is_away(
    client: httpx.AsyncClient, platform: FakePlatform, tmp_path: Path
) -> None:
    whole = await client.get("/health/ready")
    assert (whole.status_code, set(whole.json()["services"].values())) == (200, {"serving"})
    app = build(platform.settings(tmp_path).model_copy(update={"pricing_address": f"unix:{tmp_path}/away/pricing"}))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as other,
    ):
        broken = await other.get("/health/ready")
        assert (await other.get("/health/live")).status_code == 200
        away = await other.get("/v1/accounts", headers=ADMIN)
    assert broken.status_code == 503
    assert {name for name, state in broken.json()["services"].items() if state == "away"} == {"pricing"}
    assert (_problem(away).status, _problem(away).reason) == (503, "upstream_away")


async def test_metrics_are_for_this_machine_alone(app: FastAPI, client: httpx.AsyncClient) -> None:
    await client.get("/v1/me", headers=ADMIN)
    here = await client.get("/metrics")
    assert 'coterie_http_total{method="GET",route="/v1/me",status="200"}' in here.text
    assert (await client.get("/metrics", headers={"X-Forwarded-For": "10.0.0.9"})).status_code == 403
    elsewhere = httpx.ASGITransport(app, client=("10.0.0.9", 1234))
    async with httpx.AsyncClient(transport=elsewhere, base_url="http://gateway") as other:
        assert (await other.get("/metrics")).status_code == 403


async def test_a_revoked_key_stops_working_here_at_once(client: httpx.AsyncClient, platform: FakePlatform) -> None:
    device = bearer("device")
    assert (await client.get("/v1/me", headers=device)).json()["subject"] == "dev_1"
    del platform.keys["device-key"]
    assert (await client.get("/v1/me", headers=device)).status_code == 200  # remembered, for seconds
    assert (await client.post("/v1/devices/dev_1/revocation", headers=ADMIN, json={})).status_code == 200
    refused = _problem(await client.get("/v1/me", headers=device))
    assert (refused.status, refused.reason) == (401, "unknown_key")
    del platform.keys["publisher-key"]
    assert (await client.delete("/v1/keys/key_2", headers=ADMIN)).status_code == 204
    assert (await client.get("/v1/me", headers=bearer("publisher"))).status_code == 401

"""Default deny: every route, with every kind of caller."""

from __future__ import annotations

import re

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from services.gateway.access.guard import GuardedRoute
from services.gateway.access.table import ACCESS, ADMIN, DEVICE, PUBLIC, PUBLISHER
from services.gateway.app import build
from services.gateway.settings import GatewaySettings
from services.gateway.wire.plain_routes import declared
from tests.contract.gateway.conftest import bearer
from tests.contract.gateway.fakes import FakePlatform

PUBLIC_PATHS = {
    ("GET", "/health/live"),
    ("GET", "/health/ready"),
    ("GET", "/metrics"),
    ("POST", "/v1/devices"),
    ("POST", "/v1/links/{link_id}/claim"),
    ("POST", "/v1/links/{link_id}/sessions"),
    ("GET", "/docs"),
    ("GET", "/docs-assets"),
    ("GET", "/openapi.json"),
}
_APP = build(GatewaySettings())
ROUTES = [route for route in declared(_APP.routes) if isinstance(route, APIRoute)]
GUARDED = [route for route in ROUTES if ACCESS.get(route.name) is not PUBLIC]


def _concrete(path: str) -> str:
    values = {"number": "1", "digest": "0a" * 32, "solver": "blocks"}
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], "other_1"), path)


def _method(route: APIRoute) -> str:
    return next(iter(route.methods or ()))


def test_every_route_is_guarded_and_in_table_and_table_has_no_other() -> None:
    assert all(isinstance(route, GuardedRoute) for route in ROUTES)
    names = [route.name for route in ROUTES]
    assert len(names) == len(set(names))
    assert set(names) == set(ACCESS)


def test_the_public_paths_are_exactly_those_listed() -> None:
    public = {
        (method, str(getattr(route, "path", "")))
        for route in declared(_APP.routes)
        if not isinstance(route, APIRoute) or ACCESS[route.name] is PUBLIC
        for method in (getattr(route, "methods", None) or {"GET"}) - {"HEAD"}
    }
    assert public == PUBLIC_PATHS


async def test_without_a_key_every_guarded_route_answers_401(client: httpx.AsyncClient, platform: FakePlatform) -> None:
    for route in GUARDED:
        answer = await client.request(_method(route), _concrete(route.path), content=b"{not json")
        assert answer.status_code == 401, route.path
        assert answer.json()["reason"] == "missing_key"
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert platform.calls == []


@pytest.mark.parametrize("role", [ADMIN, PUBLISHER, DEVICE])
async def test_a_role_that_is_not_named_gets_403_and_no_service_hears_of_it(
    client: httpx.AsyncClient, platform: FakePlatform, role: str
) -> None:
    closed = [route for route in GUARDED if role not in ACCESS[route.name]]
    assert closed
    for route in closed:
        answer = await client.request(_method(route), _concrete(route.path), headers=bearer(role))
        assert (answer.status_code, answer.json()["reason"]) == (403, "role_not_allowed"), route.path
    assert {call.method for call in platform.calls} == {"Authenticate"}


async def test_a_route_missing_from_the_table_is_closed(app: FastAPI, client: httpx.AsyncClient) -> None:
    async def forgotten() -> None:
        return None

    app.router.routes.append(GuardedRoute("/v1/forgotten", forgotten, methods=["GET"]))
    assert (await client.get("/v1/forgotten")).status_code == 401
    assert (await client.get("/v1/forgotten", headers=bearer(ADMIN))).status_code == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/devices/dev_2"),
        ("PATCH", "/v1/devices/dev_2"),
        ("POST", "/v1/devices/dev_2/heartbeat"),
        ("PUT", "/v1/devices/dev_2/keys"),
        ("POST", "/v1/devices/dev_2/revocation"),
        ("GET", "/v1/owners/own_2"),
        ("PUT", "/v1/trust/friendships/own_2/own_1"),
        ("PUT", "/v1/tasks/tsk_1/enrolments/dev_2"),
        ("DELETE", "/v1/tasks/tsk_1/enrolments/dev_2"),
        ("PUT", "/v1/tasks/tsk_1/rounds/1/updates/dev_2"),
        ("GET", "/v1/accounts/device:dev_2"),
        ("GET", "/v1/accounts/owner:own_2"),
        ("GET", "/v1/accounts/publisher:pub_1/statement"),
        ("GET", "/v1/payments?device=dev_2"),
        ("GET", "/v1/privacy/dev_2"),
    ],
)
async def test_a_device_acts_for_itself_alone(
    client: httpx.AsyncClient, platform: FakePlatform, method: str, path: str
) -> None:
    key, proof = "A" * 43 + "=", "A" * 86 + "=="
    bodies = {
        "keys": {"signing_key": key, "sealing_key": key, "proof": proof},
        "own_1": {"strength": 1},
        "dev_2": {"samples": 5} if "enrolments" in path else {},
    }
    body = bodies.get(path.rpartition("/")[2], {})
    answer = await client.request(method, path, headers=bearer(DEVICE), json=None if method == "GET" else body)
    assert (answer.status_code, answer.json()["reason"]) == (403, "not_yours"), answer.text
    assert {call.method for call in platform.calls} == {"Authenticate"}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/tasks/tsk_1/plan",
        "/v1/tasks/tsk_1/rounds/1/prices",
        "/v1/payments?task=tsk_1",
        "/v1/payments",
        "/v1/payments/summary",
        "/v1/accounts/escrow:tsk_1",
        "/v1/accounts/device:dev_1",
        "/v1/accounts/publisher:pub_2/statement",
        "/v1/trust/graph?task=tsk_1",
        "/v1/trust/graph",
    ],
)
async def test_a_publisher_sees_the_inside_of_its_own_tasks_alone(
    client: httpx.AsyncClient, platform: FakePlatform, path: str
) -> None:
    platform.keys["publisher-key"].subject = "pub_9"  # the fakes' tasks are pub_1's
    try:
        answer = await client.get(path, headers=bearer(PUBLISHER))
    finally:
        platform.keys["publisher-key"].subject = "pub_1"
    assert (answer.status_code, answer.json()["reason"]) == (403, "not_yours")
    assert {call.method for call in platform.calls} <= {"Authenticate", "GetTask"}


async def test_a_device_sees_its_own_offer_alone(client: httpx.AsyncClient, platform: FakePlatform) -> None:
    from coterie_api.pricing.v1 import pricing_pb2

    offers = [pricing_pb2.Offer(device_id="dev_1", price_microcredits=7), pricing_pb2.Offer(device_id="dev_2")]
    pot = pricing_pb2.PotDetails(pot_microcredits=9)
    platform.replies["GetQuote"] = pricing_pb2.Quote(task_id="tsk_1", round=1, offers=offers, pot_details=pot)
    own = (await client.get("/v1/tasks/tsk_1/rounds/1/prices", headers=bearer(DEVICE))).json()
    assert [offer["price_microcredits"] for offer in own["offers"]] == [7]
    assert own["details"] == {}
    every = (await client.get("/v1/tasks/tsk_1/rounds/1/prices", headers=bearer(ADMIN))).json()
    assert len(every["offers"]) == 2
    assert every["details"] == {"pot_microcredits": 9}


async def test_the_caller_and_the_request_id_reach_the_service(
    client: httpx.AsyncClient, platform: FakePlatform
) -> None:
    answer = await client.get("/v1/devices/dev_1", headers=bearer(DEVICE) | {"X-Request-Id": "abc-1"})
    (call,) = platform.called("GetDevice")
    assert (call.caller.role, call.caller.subject, call.caller.owner_id) == ("device", "dev_1", "own_1")
    assert call.request_id == answer.headers["x-request-id"] == "abc-1"

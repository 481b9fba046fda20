"""What single routes do beyond passing a message on."""

from __future__ import annotations

import csv
import inspect
import io
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from types import UnionType
from typing import Any, get_args, get_origin

import httpx
import networkx as nx
import pytest
from fastapi.routing import APIRoute

from coterie import records
from coterie_api.aggregation.v1 import aggregation_pb2
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.pricing.v1 import pricing_pb2
from coterie_api.topology.v1 import topology_pb2
from coterie_api.trust.v1 import trust_pb2
from services.gateway.app import build
from services.gateway.routes.whatif import SERVICE_OF_SOLVER
from services.gateway.settings import GatewaySettings
from services.gateway.wire.plain_routes import declared
from services.kit.errors import InvalidInput, PermissionDenied
from services.kit.rpc.parameters import from_struct
from tests.contract.gateway.conftest import bearer
from tests.contract.gateway.fakes import FakePlatform

ADMIN = bearer("admin")


class BadCursor(InvalidInput):
    """As the ledger says it."""


async def test_payments_as_csv_are_all_pages_and_no_formula_runs(
    client: httpx.AsyncClient, platform: FakePlatform
) -> None:
    async def pages(request: pricing_pb2.ListPaymentsRequest) -> pricing_pb2.ListPaymentsReply:
        number = int(request.cursor or 0)
        payment = pricing_pb2.Payment(number=number, amount_microcredits=-5, because="=1+1")
        return pricing_pb2.ListPaymentsReply(payments=[payment], next_cursor=str(number + 1) if number < 2 else "")

    platform.replies["ListPayments"] = pages
    answer = await client.get("/v1/payments?format=csv&task=tsk_1", headers=ADMIN)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["number"] for row in rows] == ["0", "1", "2"]
    assert {row["amount_microcredits"] for row in rows} == {"-5"}
    assert {row["because"] for row in rows} == {"'=1+1"}
    assert {call.request.task_id for call in platform.called("ListPayments")} == {"tsk_1"}


async def test_a_refused_csv_is_a_problem_not_a_broken_file(client: httpx.AsyncClient, platform: FakePlatform) -> None:
    platform.replies["GetStatement"] = BadCursor("start again")
    answer = await client.get("/v1/accounts/device:dev_1/statement?format=csv", headers=bearer("device"))
    assert (answer.status_code, answer.json()["reason"]) == (400, "bad_cursor")


async def test_a_device_that_names_no_device_gets_its_own_payments(
    client: httpx.AsyncClient, platform: FakePlatform
) -> None:
    assert (await client.get("/v1/payments", headers=bearer("device"))).status_code == 200
    assert platform.called("ListPayments")[0].request.device_id == "dev_1"


@pytest.fixture
def triangle(platform: FakePlatform) -> None:
    """Three devices, two ties."""
    devices = [trust_pb2.Device(id=f"dev_{n}", name=f"<{n}>", owner_id="own_1") for n in range(3)]
    ties = [
        trust_pb2.Tie(
            device_a="dev_0",
            device_b="dev_1",
            direct=0.25,
            relations=[words.RELATION_KIND_OWNERSHIP, words.RELATION_KIND_SOCIAL],
        ),
        trust_pb2.Tie(device_a="dev_1", device_b="dev_2", direct=1.0),
    ]
    platform.replies["GetGraph"] = trust_pb2.TrustGraph(devices=devices, ties=ties, at=7)


@pytest.mark.usefixtures("triangle")
@pytest.mark.parametrize("format", ["graphml", "node-link"])
async def test_the_trust_graph_reads_back_in_networkx(client: httpx.AsyncClient, format: str) -> None:
    answer = await client.get(f"/v1/trust/graph?format={format}", headers=ADMIN)
    graph: Any = (
        nx.parse_graphml(answer.text) if format == "graphml" else nx.node_link_graph(answer.json(), edges="links")
    )
    assert graph.edges["dev_0", "dev_1"] == {"direct": 0.25, "relations": "ownership social"}
    assert graph.nodes["dev_2"]["name"] == "<2>"
    assert graph.number_of_edges() == 2


@pytest.mark.usefixtures("triangle")
async def test_a_tasks_graph_is_that_of_its_active_devices(client: httpx.AsyncClient, platform: FakePlatform) -> None:
    async def pages(request: aggregation_pb2.ListEnrolmentsRequest) -> aggregation_pb2.ListEnrolmentsReply:
        state = words.ENROLMENT_STATE_WITHDRAWN if request.cursor else words.ENROLMENT_STATE_ACTIVE
        name = "dev_withdrawn" if request.cursor else "dev_active"
        enrolment = aggregation_pb2.Enrolment(device_id=name, state=state)
        return aggregation_pb2.ListEnrolmentsReply(enrolments=[enrolment], next_cursor="" if request.cursor else "more")

    platform.replies["ListEnrolments"] = pages
    assert (await client.get("/v1/trust/graph?task=tsk_1", headers=bearer("publisher"))).status_code == 200
    assert list(platform.called("GetGraph")[0].request.device_ids) == ["dev_active"]


async def test_the_graph_of_a_task_without_devices_is_empty(client: httpx.AsyncClient, platform: FakePlatform) -> None:
    platform.replies["ListEnrolments"] = aggregation_pb2.ListEnrolmentsReply()
    answer = await client.get("/v1/trust/graph?task=tsk_1", headers=ADMIN)
    assert answer.json() == {"devices": [], "ties": [], "at": 0}
    graphml = await client.get("/v1/trust/graph?task=tsk_1&format=graphml", headers=ADMIN)
    assert graphml.headers["content-type"].startswith("application/graphml+xml")
    linked = await client.get("/v1/trust/graph?task=tsk_1&format=node-link", headers=ADMIN)
    empty: list[Any] = [nx.parse_graphml(graphml.text), nx.node_link_graph(linked.json(), edges="links")]
    assert [graph.number_of_nodes() for graph in empty] == [0, 0]
    assert platform.called("GetGraph") == []


@pytest.mark.parametrize("solver", list(SERVICE_OF_SOLVER))
async def test_solver_gets_body_as_it_is_and_its_answer_comes_back_as_it_is(
    client: httpx.AsyncClient, platform: FakePlatform, solver: str
) -> None:
    text = '{"limit":"inf",  "odd": 1.0}'
    answer = await client.post(f"/v1/what-if/{solver}", headers=bearer("publisher"), content=text)
    assert (answer.status_code, answer.text) == (200, '{"solved":true}')
    (call,) = platform.called("WhatIf")
    assert (call.request.solver, call.request.input_json) == (solver, text)
    assert type(call.request).__module__.split(".")[1] == SERVICE_OF_SOLVER[solver]


async def test_tasks_become_the_runs_that_quality_is_fitted_to(
    client: httpx.AsyncClient, platform: FakePlatform
) -> None:
    """Mean noise of those who work; the rest is as aggregation tells it."""
    run = aggregation_pb2.MeasuredTask(task_id="tsk_1", non_iid=1.5, loss=0.5, accuracy=75.0)
    platform.replies["ListMeasuredTasks"] = aggregation_pb2.ListMeasuredTasksReply(tasks=[run])
    roles = [(words.ROLE_MEMBER, 0.1), (words.ROLE_SOLO, 0.5), (words.ROLE_IDLE, 9.0)]
    platform.replies["GetPlan"] = topology_pb2.Plan(
        assignments=[topology_pb2.Assignment(role=role, noise_multiplier=noise) for role, noise in roles]
    )
    other = {"noise": 0.0, "non_iid": 1.0, "loss": 0.1, "accuracy": 90.0}
    body = {"tasks": ["tsk_1", "tsk_1"], "measured": [other]}
    answer = await client.post("/v1/what-if/quality", headers=bearer("publisher"), json=body)
    assert answer.status_code == 200
    (call,) = platform.called("WhatIf")
    expected = {"noise": pytest.approx(0.3), "non_iid": 1.5, "loss": 0.5, "accuracy": 75.0}
    assert json.loads(call.request.input_json) == {"measured": [other, expected]}

    for wrong, why in (
        ({"tasks": ["tsk_1", "tsk_2"]}, "tsk_2: no version has both a loss and an accuracy"),
        ({"tasks": []}, "tasks must be a list of task ids"),
        ({"tasks": [f"tsk_{number}" for number in range(101)]}, "name fewer"),
        ({"tasks": ["tsk_1"], "measured": 3}, "measured must be a list"),
    ):
        refused = await client.post("/v1/what-if/quality", headers=bearer("publisher"), json=wrong)
        assert refused.status_code == 400
        assert why in refused.json()["detail"]
    platform.replies["ListMeasuredTasks"] = PermissionDenied("task tsk_1 belongs to another publisher")
    theirs = await client.post("/v1/what-if/quality", headers=bearer("publisher"), json={"tasks": ["tsk_1"]})
    assert theirs.status_code == 403
    assert len(platform.called("WhatIf")) == 1


async def test_an_unknown_solver_bad_bytes_and_a_solvers_refusal_are_clear(
    client: httpx.AsyncClient, platform: FakePlatform
) -> None:
    unknown = await client.post("/v1/what-if/oracle", headers=ADMIN, content="{}")
    assert (unknown.status_code, unknown.json()["reason"]) == (404, "unknown_solver")
    garbled = await client.post("/v1/what-if/noise", headers=ADMIN, content=b"\xff")
    assert (garbled.status_code, garbled.json()["reason"]) == (400, "not_json")
    platform.replies["WhatIf"] = InvalidInput("samples: must not be negative (got -1)")
    refused = await client.post("/v1/what-if/noise", headers=ADMIN, content='{"samples": [-1]}')
    assert (refused.status_code, refused.json()["detail"]) == (400, "samples: must not be negative (got -1)")


async def test_task_travels_with_its_hints_as_text_and_its_parameters_as_message(
    client: httpx.AsyncClient, platform: FakePlatform
) -> None:
    body = {"name": "digits", "preset": "fedavg", "rounds": 3, "training": {"epochs": 2}, "seed": -5}
    body["parameters"] = {"privacy": {"epsilon": 4}, "topology": {"max_degree": None}}
    assert (await client.post("/v1/tasks", headers=bearer("publisher"), json=body)).status_code == 201
    sent = platform.called("CreateTask")[0].request.specification
    assert (sent.name, sent.preset, sent.rounds, sent.seed) == ("digits", "fedavg", 3, -5)
    assert sent.training_json == '{"epochs":2}'
    assert from_struct(sent.parameters) == body["parameters"]


async def test_work_is_asked_for_the_caller_and_the_tasks_named(
    client: httpx.AsyncClient, platform: FakePlatform
) -> None:
    answer = await client.get("/v1/work?wait=3&task=tsk_1&task=tsk_2", headers=bearer("device"))
    asked = platform.called("GetWork")[0].request
    assert (asked.device_id, asked.wait_seconds, list(asked.task_ids)) == ("dev_1", 3, ["tsk_1", "tsk_2"])
    assert set(answer.json()) == {"items", "retry_after_seconds", "ended", "duties"}


async def test_one_cell_is_found_among_all_or_not(client: httpx.AsyncClient, platform: FakePlatform) -> None:
    cells = [topology_pb2.Cell(id="north", blocks=2), topology_pb2.Cell(id="south", blocks=5)]
    platform.replies["ListCells"] = topology_pb2.ListCellsReply(cells=cells)
    assert (await client.get("/v1/cells/south", headers=ADMIN)).json()["blocks"] == 5
    assert (await client.get("/v1/cells/west", headers=ADMIN)).json()["reason"] == "unknown_cell"


async def test_the_document_says_who_may_and_what_can_go_wrong(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            assert "Open to: " in operation["description"], path
            refused = operation["responses"].get("422", {}).get("content", {})
            assert refused.keys() <= {"application/problem+json"}, path  # not the framework's own form
            assert "security" in operation, path
    schemas = document["components"]["schemas"]
    bodies = {
        operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for operations in document["paths"].values()
        for operation in operations.values()
        if "$ref" in operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    }
    assert bodies
    assert [name for name in bodies if "example" not in schemas[name]] == []
    page = await client.get("/docs")
    assert page.status_code == 200
    sources = re.findall(r'(?:src|href)="([^"]*)"', page.text)
    assert len(sources) == 3
    assert [(await client.get(source)).status_code for source in sources] == [200] * 3  # nothing from elsewhere


def _kinds(hint: Any) -> Iterator[Any]:
    """The classes in a hint."""
    yield from [get_origin(hint) or hint] if not isinstance(hint, UnionType) else []
    for argument in get_args(hint):
        yield from _kinds(argument)


async def test_answers_are_the_sdks_records_and_the_document_describes_them(client: httpx.AsyncClient) -> None:
    """One definition of each answer: what the document says of a field is what an editor shows of the record."""
    answers = [route.response_model for route in _routes() if route.response_model is not None]
    kinds = {kind for answer in answers for kind in _kinds(answer)} - {dict, str}  # who signed what, by device
    assert {kind for kind in kinds if not issubclass(kind, records.Record)} == set()
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    for kind in kinds - {records.Items, records.Page}:
        assert schemas[kind.__name__]["description"] == inspect.getdoc(kind)
        assert schemas[kind.__name__]["required"] == [field.name for field in fields(kind)]
    assert schemas["Task"]["properties"]["reason"]["description"] == "Why it ended; empty before."
    assert schemas["TaskState"]["x-extensible-enum"] == list(records.TaskState)
    assert "enum" not in schemas["TaskState"]  # a new word must not break who reads by the document
    assert schemas["Peer"]["properties"]["signing_key"]["type"] == "string"


def _routes() -> list[APIRoute]:
    return [route for route in declared(build(GatewaySettings()).routes) if isinstance(route, APIRoute)]


async def test_an_offer_without_terms_shows_an_empty_object(client: httpx.AsyncClient, platform: FakePlatform) -> None:
    offers = [pricing_pb2.Offer(device_id="dev_1"), pricing_pb2.Offer(device_id="dev_2", terms=pricing_pb2.Terms())]
    platform.replies["GetQuote"] = pricing_pb2.Quote(offers=offers)
    answer = await client.get("/v1/tasks/tsk_1/rounds/1/prices", headers=ADMIN)
    bare, termed = (offer["terms"] for offer in answer.json()["offers"])
    assert bare == {}
    assert termed == {"others_variance": 0, "variance_low": 0, "variance_high": 0, "trust": [], "hidden": []}

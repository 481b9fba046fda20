"""Schemathesis over the whole OpenAPI document: no request, sound or not, is answered with 5xx or off the contract."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from services.gateway.__main__ import server
from services.gateway.access import ACCESS, DEVICE, PUBLIC
from services.gateway.app import build
from services.gateway.edge import REQUEST_TOTAL
from services.gateway.settings import GatewaySettings
from tests.contract.gateway.fakes import FakePlatform

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MOST_ITEMS, MOST_CHARACTERS = 20, 200


def _bounded(node: Any) -> Any:
    """The document with its largest sizes made small: values at the bounds are tried, and 10,000 items take minutes."""
    if isinstance(node, list):
        return [_bounded(item) for item in node]
    if not isinstance(node, dict):
        return node
    bounds = {"maxItems": MOST_ITEMS, "maxLength": MOST_CHARACTERS}
    return {
        key: min(value, bounds[key]) if key in bounds and isinstance(value, int) else _bounded(value)
        for key, value in node.items()
    }


_schema = schemathesis.openapi.from_dict(_bounded(build(GatewaySettings()).openapi()))


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway before fake services, in a thread of its own; no request may end in a fault."""
    started, stop, port = threading.Event(), threading.Event(), []

    async def run(folder: Path) -> None:
        platform = await FakePlatform.start(folder)
        gateway = server(platform.settings(folder))
        task = asyncio.create_task(gateway._serve())
        while not gateway.started:  # noqa: ASYNC110 - uvicorn has a flag, not an event
            await asyncio.sleep(0.01)
        port.append(gateway.servers[0].sockets[0].getsockname()[1])
        started.set()
        await asyncio.to_thread(stop.wait)
        gateway.should_exit = True
        await task
        await platform.server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(run(tmp_path_factory.mktemp("fuzz"))))
    before = _faults()
    thread.start()
    assert started.wait(20)
    yield f"http://127.0.0.1:{port[0]}"
    stop.set()
    thread.join(20)
    assert _faults() == before, "an answer that had begun was cut short; the log says why"


def _faults() -> float:
    """Requests that ended in a fault, whatever status their callers saw."""
    samples = (sample for metric in REQUEST_TOTAL.collect() for sample in metric.samples)
    return sum(sample.value for sample in samples if sample.labels.get("status") == "500")


@_schema.parametrize()
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
def test_no_request_is_answered_off_the_contract(case: schemathesis.Case[Any], base_url: str) -> None:
    roles = ACCESS[case.operation.definition.raw["operationId"]]
    headers = {}
    if roles is not PUBLIC:
        role = DEVICE if DEVICE in roles else min(roles)
        headers["Authorization"] = f"Bearer {role}-key"
    if "device_id" in case.path_parameters and DEVICE in roles:
        case.path_parameters["device_id"] = "dev_1"
    case.call_and_validate(base_url=base_url, headers=headers, checks=CHECKS)

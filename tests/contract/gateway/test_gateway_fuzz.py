"""Schemathesis over the whole OpenAPI document: no request, sound or not, is answered with 5xx or off the contract."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis

from services.gateway.__main__ import server
from services.gateway.wire.middleware import REQUEST_TOTAL
from tests.contract.gateway.fakes import FakePlatform
from tests.contract.gateway.fuzzing import bounded, document, exercise

KEYS = {role: f"{role}-key" for role in ("admin", "publisher", "device")}
_schema = document()


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway before fake services, in its own thread; no request may cause an internal error."""
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
@bounded
def test_no_request_is_answered_off_the_contract(case: schemathesis.Case[Any], base_url: str) -> None:
    exercise(case, base_url, KEYS, {"device_id": "dev_1"})

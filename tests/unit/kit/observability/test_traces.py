"""Traces of calls between services: one trace, spans that hang together, and nothing at all without an endpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from starlette.types import Receive, Scope, Send

from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.topology.v1 import topology_pb2_grpc as rpc
from services.gateway.wire.middleware import RequestMiddleware
from services.kit.errors import Conflict
from services.kit.observability import traces
from services.kit.rpc import sockets
from services.kit.rpc.channels import open_channel
from services.kit.rpc.server import Server
from services.kit.runtime.settings import ServiceSettings

NAME = pb.DESCRIPTOR.services_by_name["Topology"].full_name
STRANGER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Full(Conflict):
    pass


class Cells(rpc.TopologyServicer):
    """Takes a cell, or refuses it."""

    async def PutCell(self, request: pb.Cell, context: Any) -> pb.Cell:
        if request.id == "full":
            raise Full("there is no room; delete a cell first")
        return request


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    retained = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(retained))
    traces.use(provider.get_tracer("tests"))
    yield retained
    traces.use(None)


def by_kind(spans: InMemorySpanExporter) -> dict[SpanKind, ReadableSpan]:
    return {span.kind: span for span in spans.get_finished_spans()}


async def put_cell(folder: Path, cell_id: str) -> None:
    """Asks a server in this process, as one service asks another."""
    address = sockets.address(folder, "topology")
    server = Server(ServiceSettings(), address)
    server.add(rpc.add_TopologyServicer_to_server, Cells(), NAME)  # type: ignore[abstract]
    await server.start()
    channel = open_channel(ServiceSettings(), address)
    try:
        await rpc.TopologyStub(channel).PutCell(pb.Cell(id=cell_id))
    finally:
        await channel.close()
        await server.stop()


async def test_a_call_and_its_answer_are_one_trace(spans: InMemorySpanExporter, tmp_path: Path) -> None:
    with traces.step("open round", task_id="tsk_1", round=2):
        await put_cell(tmp_path, "a")
    result = by_kind(spans)
    step, asked, answered = (result[kind] for kind in (SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.SERVER))
    assert step.parent is None
    assert step.attributes == {"coterie.task_id": "tsk_1", "coterie.round": 2}
    assert asked.parent is not None
    assert answered.parent is not None
    assert (asked.parent.span_id, answered.parent.span_id) == (step.context.span_id, asked.context.span_id)
    assert {span.context.trace_id for span in (step, asked, answered)} == {step.context.trace_id}
    assert asked.name == answered.name == f"{NAME}/PutCell"
    assert asked.attributes is not None
    assert asked.attributes["rpc.response.status_code"] == "OK"


async def test_a_refusal_says_its_reason_and_is_no_fault(spans: InMemorySpanExporter, tmp_path: Path) -> None:
    with pytest.raises(Conflict):
        await put_cell(tmp_path, "full")
    for span in by_kind(spans).values():
        assert span.attributes is not None
        assert span.attributes["rpc.response.status_code"] == "FAILED_PRECONDITION"
        assert span.status.is_unset
    answered = by_kind(spans)[SpanKind.SERVER].attributes
    assert answered is not None
    assert answered["coterie.reason"] == "full"


async def ask_gateway(traceparent: str, status: int = 200) -> list[str]:
    """One request to the gateway's edge; ids of the traces its handler was in."""
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(traces.current_id())
        scope["path_params"] = {"task_id": "tsk_1"}
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: object) -> None:
        pass

    headers = [(b"traceparent", traceparent.encode("latin-1")), (b"authorization", b"Bearer secret")]
    scope = {"type": "http", "method": "GET", "path": "/v1/tasks/tsk_1", "headers": headers}
    await RequestMiddleware(app)(scope, receive, send)
    return seen


async def test_a_stranger_neither_joins_a_trace_nor_says_what_is_in_it(spans: InMemorySpanExporter) -> None:
    [trace_id] = await ask_gateway(STRANGER)
    [span] = spans.get_finished_spans()
    assert span.parent is None
    assert trace_id == f"{span.context.trace_id:032x}" != STRANGER.split("-")[1]
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [STRANGER.split("-")[1]]
    assert "secret" not in span.to_json()


@pytest.mark.parametrize("traceparent", ["", "garbage", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "\xff" * 500])
async def test_a_trace_that_is_none_is_not_linked(spans: InMemorySpanExporter, traceparent: str) -> None:
    await ask_gateway(traceparent, status=503)
    [span] = spans.get_finished_spans()
    assert not span.links
    assert not span.status.is_ok
    assert not span.status.is_unset
    assert span.attributes is not None
    assert span.attributes["coterie.task_id"] == "tsk_1"


def test_log_lines_name_their_trace() -> None:
    code = (
        "from opentelemetry.sdk.trace import TracerProvider; from services.kit.observability import logs, traces\n"
        "traces.use(TracerProvider().get_tracer('x')); logs.configure('trust', text=False)\n"
        "with traces.step('x'): logs.get_logger().info('hello'); print(traces.current_id())\n"
        "logs.get_logger().info('outside')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    inside, outside = (json.loads(line) for line in done.stderr.splitlines())
    assert inside["trace_id"] == done.stdout.strip() != ""
    assert "trace_id" not in outside


def test_without_an_endpoint_nothing_is_loaded() -> None:
    code = (
        "import sys; from services.kit.observability import traces\n"
        "import services.gateway.app, services.kit.runtime.process\n"
        "traces.configure('trust', ''); traces.note(a=1); traces.ended('OK')\n"
        "with traces.step('x'): assert traces.current_id() == '' and traces.calling('/a/B') is None\n"
        "assert not traces.are_on(); print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_endpoint_that_is_none_is_refused_with_what_to_give() -> None:
    with pytest.raises(ValueError, match="http://host:4318"):
        traces.configure("trust", "collector:4317")

"""Traces: spans of requests, of calls between services and of a round's steps, sent by OTLP where an endpoint is set.

Without an endpoint nothing of OpenTelemetry's SDK is imported, nothing is recorded and nothing is sent. A request from
outside begins a trace of its own, with a link to the trace its caller names: a stranger's word neither joins other
people's traces nor decides what is kept. Between services the context travels as `traceparent`, beside the request id.
Spans hold routes, methods, ids and outcomes; no path as it was asked, no key, no body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Tracer
    from opentelemetry.util.types import AttributeValue

EXPORT_SECONDS = 3.0
"""How long one delivery to the collector may take; one that is away costs spans, never requests."""
HEADER = "traceparent"
_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
"""gRPC status codes that are server errors in OpenTelemetry's conventions."""
_tracer: Tracer | None = None


def configure(service: str, endpoint: str) -> None:
    """Sends the spans of this process to `endpoint` from now on; an empty one sends none.

    The collector's certificate, headers and what is sampled are OpenTelemetry's own variables, `OTEL_…`.
    """
    if not endpoint:
        return
    if not endpoint.startswith(("http://", "https://")):
        raise ValueError(f"COTERIE_OTLP_ENDPOINT is {endpoint!r}; give a collector's address: http://host:4318")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from coterie.version import VERSION

    resource = Resource.create({"service.name": f"coterie-{service}", "service.version": VERSION})
    provider = TracerProvider(resource=resource)  # it sends what it has at the end of the process
    exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    use(provider.get_tracer("coterie"))


def use(tracer: Tracer | None) -> None:
    """Records with this tracer from now on; None stops."""
    global _tracer
    _tracer = tracer


def are_on() -> bool:
    """Whether anything is recorded."""
    return _tracer is not None


def current_id() -> str:
    """Id of the present trace, for log lines; empty outside one."""
    if _tracer is None:
        return ""
    from opentelemetry.trace import format_trace_id, get_current_span

    context = get_current_span().get_span_context()
    return format_trace_id(context.trace_id) if context.is_valid else ""


def note(**attributes: str | int | float) -> None:
    """Adds to the present span, as `coterie.…`."""
    if _tracer is not None:
        from opentelemetry.trace import get_current_span

        get_current_span().set_attributes({f"coterie.{name}": value for name, value in attributes.items()})


@contextmanager
def request(method: str, caller_says: str) -> Iterator[Span]:
    """A request from outside: the beginning of a trace, linked to what the caller says it belongs to."""
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind, get_current_span

    told = get_current_span(_read({HEADER: caller_says})).get_span_context()
    links = [Link(told)] if told.is_valid else []
    with _span(method, SpanKind.SERVER, {"http.request.method": method}, Context(), links) as span:
        yield span


def answered(span: Span, method: str, route: str, status: int) -> None:
    """Says how a request was answered, by which route."""
    from opentelemetry.trace import StatusCode

    span.update_name(f"{method} {route}")
    span.set_attributes({"http.route": route, "http.response.status_code": status})
    if status >= 500:
        span.set_status(StatusCode.ERROR)


@contextmanager
def answering(method: str, metadata: Mapping[str, str]) -> Iterator[None]:
    """A call of another service, as part of the trace it names."""
    from opentelemetry.trace import SpanKind

    with _span(method.lstrip("/"), SpanKind.SERVER, _of(method), _read(metadata)):
        yield


@contextmanager
def step(name: str, **attributes: str | int) -> Iterator[None]:
    """Something the platform does by itself: the beginning of a trace."""
    if _tracer is None:
        yield
        return
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind

    told = {f"coterie.{key}": value for key, value in attributes.items()}
    with _span(name, SpanKind.INTERNAL, told, Context()):
        yield


def calling(method: str) -> tuple[Span, tuple[tuple[str, str], ...]] | None:
    """The span of a call to another service, to be ended by whoever asked for it, and what the call carries."""
    if _tracer is None:
        return None
    from opentelemetry.trace import SpanKind, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    span = _tracer.start_span(method.lstrip("/"), kind=SpanKind.CLIENT, attributes=_of(method))
    carried: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carried, set_span_in_context(span))
    return span, tuple(carried.items())


def ended(code: str, span: Span | None = None) -> None:
    """Record the gRPC status a call ended with, on the current span or another."""
    if _tracer is None:
        return
    from opentelemetry.trace import StatusCode, get_current_span

    span = span or get_current_span()
    span.set_attribute("rpc.response.status_code", code)
    if is_fault(code):
        span.set_status(StatusCode.ERROR)


def is_fault(code: str) -> bool:
    """Whether a gRPC status is a server error; a refusal is the caller's."""
    return code in _FAULTS


def _of(method: str) -> dict[str, AttributeValue]:
    return {"rpc.system.name": "grpc", "rpc.method": method.lstrip("/")}


def _read(carrier: Mapping[str, str]) -> Context:
    """The context that a `traceparent` names; nothing else is taken from outside."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({HEADER: carrier.get(HEADER, "")}, Context())


@contextmanager
def _span(
    name: str,
    kind: SpanKind,
    attributes: Mapping[str, AttributeValue],
    parent: Context,
    links: Sequence[Link] = (),
) -> Iterator[Span]:
    assert _tracer is not None
    with _tracer.start_as_current_span(
        name, parent, kind, dict(attributes), links, record_exception=False, set_status_on_exception=False
    ) as span:
        yield span

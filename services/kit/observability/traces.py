"""Traces: spans of requests, of calls between services and of a round's steps, exported by OTLP.

Without an endpoint the OpenTelemetry SDK is not imported and nothing is recorded. A request from outside starts a new
trace with a link to the trace that its caller names, so that callers can neither join other traces nor decide sampling.
Between services the context travels as `traceparent`. Spans hold routes, methods, ids and outcomes; never a raw path, a
key or a body.
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
"""Time limit of one export. An unreachable collector loses spans, never requests."""
HEADER = "traceparent"
_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
"""gRPC status codes that are server errors in OpenTelemetry's conventions."""
_tracer: Tracer | None = None


def configure(service: str, endpoint: str) -> None:
    """Export the spans of this process to `endpoint`; an empty one exports none.

    OpenTelemetry's own `OTEL_…` variables set the collector's certificate, headers and sampling.
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
    provider = TracerProvider(resource=resource)  # flushes at the end of the process
    exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    use(provider.get_tracer("coterie"))


def use(tracer: Tracer | None) -> None:
    """Record with this tracer; None stops recording."""
    global _tracer
    _tracer = tracer


def are_on() -> bool:
    """Whether spans are recorded."""
    return _tracer is not None


def current_id() -> str:
    """Return the id of the current trace, for log lines; empty outside one."""
    if _tracer is None:
        return ""
    from opentelemetry.trace import format_trace_id, get_current_span

    context = get_current_span().get_span_context()
    return format_trace_id(context.trace_id) if context.is_valid else ""


def note(**attributes: str | int | float) -> None:
    """Set attributes `coterie.…` of the current span."""
    if _tracer is not None:
        from opentelemetry.trace import get_current_span

        get_current_span().set_attributes({f"coterie.{name}": value for name, value in attributes.items()})


@contextmanager
def request(method: str, traceparent: str) -> Iterator[Span]:
    """Start the trace of a request from outside, linked to the trace that its caller names."""
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind, get_current_span

    outside = get_current_span(_read({HEADER: traceparent})).get_span_context()
    links = [Link(outside)] if outside.is_valid else []
    with _span(method, SpanKind.SERVER, {"http.request.method": method}, Context(), links) as span:
        yield span


def answered(span: Span, method: str, route: str, status: int) -> None:
    """Record the route and the response status of a request."""
    from opentelemetry.trace import StatusCode

    span.update_name(f"{method} {route}")
    span.set_attributes({"http.route": route, "http.response.status_code": status})
    if status >= 500:
        span.set_status(StatusCode.ERROR)


@contextmanager
def answering(method: str, metadata: Mapping[str, str]) -> Iterator[None]:
    """Record a call from another service as part of that service's trace."""
    from opentelemetry.trace import SpanKind

    with _span(method.lstrip("/"), SpanKind.SERVER, _of(method), _read(metadata)):
        yield


@contextmanager
def step(name: str, **attributes: str | int) -> Iterator[None]:
    """Start the trace of work that the platform begins itself."""
    if _tracer is None:
        yield
        return
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind

    named = {f"coterie.{key}": value for key, value in attributes.items()}
    with _span(name, SpanKind.INTERNAL, named, Context()):
        yield


def calling(method: str) -> tuple[Span, tuple[tuple[str, str], ...]] | None:
    """Return the span of a call to another service, which the caller must end, and the metadata of the call."""
    if _tracer is None:
        return None
    from opentelemetry.trace import SpanKind, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    span = _tracer.start_span(method.lstrip("/"), kind=SpanKind.CLIENT, attributes=_of(method))
    metadata: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(metadata, set_span_in_context(span))
    return span, tuple(metadata.items())


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
    """Read the context from `traceparent` and from no other header."""
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

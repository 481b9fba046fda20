"""Request middleware: request id in and out, security headers, metrics, traces, and responses to unexpected errors."""

from __future__ import annotations

import time
from typing import Any

from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.gateway.wire.responses import internal_error
from services.kit.observability import traces
from services.kit.observability.latency import LATENCY
from services.kit.observability.logs import get_logger
from services.kit.rpc.principal import current_request_id, set_request_id

REQUEST_SECONDS = Histogram(
    "coterie_http_seconds",
    "Duration of a request, from its head to the last byte of the response.",
    ["method", "route"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
REQUEST_TOTAL = Counter("coterie_http_total", "Requests by status.", ["method", "route", "status"])
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Security headers of every response."""
_METHODS = frozenset({"GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_log = get_logger()


class RequestMiddleware:
    """ASGI middleware around every request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._measures: dict[tuple[str, str, int], tuple[Any, Any]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif traces.are_on() and not scope["path"].startswith("/health/"):
            await self._traced(scope, receive, send)
        else:
            await self._measured(scope, receive, send)

    async def _traced(self, scope: Scope, receive: Receive, send: Send) -> None:
        with traces.request(_method(scope), _header(scope, b"traceparent")) as span:
            status = await self._measured(scope, receive, send)
            traces.note(request_id=current_request_id(), **scope.get("path_params", {}))
            traces.answered(span, _method(scope), _route(scope), status)

    async def _measured(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Serve a request; return the status of the response."""
        started = time.perf_counter()
        request_id = set_request_id(_header(scope, b"x-request-id"))
        status = 0

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS, (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except Exception:
            _log.exception("request failed", method=scope["method"], path=scope["path"])
            if status:  # the response has begun: all that is left is to cut it short
                status = 500
                raise
            await internal_error()(scope, receive, send_named)
        finally:
            self._measure(scope, status or 500, time.perf_counter() - started)
        return status or 500

    def _measure(self, scope: Scope, status: int, seconds: float) -> None:
        place = _method(scope), _route(scope), status
        measures = self._measures.get(place)
        if measures is None:
            measures = REQUEST_SECONDS.labels(*place[:2]), REQUEST_TOTAL.labels(*place)
            self._measures[place] = measures
        measures[0].observe(seconds)
        if b"wait=" not in scope.get("query_string", b""):  # long polls wait by request
            LATENCY.add(seconds)
        measures[1].inc()


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _METHODS else "other"


def _route(scope: Scope) -> str:
    return getattr(scope.get("route"), "path", "unknown")


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")

"""Responses: JSON by orjson, and every error as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from google.protobuf.message import Message
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from services.gateway.wire.convert import to_json
from services.kit import errors
from services.kit.observability.logs import get_logger
from services.kit.rpc.principal import current_request_id

RETRY_AFTER_SECONDS = 1
STATUS_OF_KIND: dict[type[errors.CoterieError], int] = {
    errors.InvalidInput: 400,
    errors.Unprocessable: 422,
    errors.Unauthenticated: 401,
    errors.PermissionDenied: 403,
    errors.NotFound: 404,
    errors.AlreadyExists: 409,
    errors.Conflict: 409,
    errors.TooLarge: 413,
    errors.Exhausted: 409,
    errors.Unavailable: 503,
}
TITLE_OF_STATUS = {
    400: "Bad request",
    401: "Authentication required",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Content too large",
    416: "Range not satisfiable",
    422: "Unprocessable content",
    500: "Internal server error",
    503: "Service unavailable",
}
INTERNAL_ERROR_TEXT = "internal error; quote the request id to the operator of this platform"
_log = get_logger()


class JsonResponse(Response):
    """A JSON response of plain Python values."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


def message_response(message: Message, status: int = 200) -> JsonResponse:
    """A protobuf message as a JSON response."""
    return JsonResponse(to_json(message), status)


def problem(
    status: int,
    reason: str,
    detail: str,
    *,
    details: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Make a problem document: status, stable reason, a sentence for users, and details."""
    document = {
        "type": f"urn:coterie:problem:{reason}",
        "title": TITLE_OF_STATUS.get(status, HTTPStatus(status).phrase),
        "status": status,
        "detail": detail,
        "reason": reason,
        "request_id": current_request_id(),
        "details": dict(details or {}),
    }
    extra = dict(headers or {})
    if status == 401:
        extra["WWW-Authenticate"] = 'Bearer realm="coterie"'
    if status == 503:
        extra.setdefault("Retry-After", str(RETRY_AFTER_SECONDS))
    return Response(orjson.dumps(document), status, extra, "application/problem+json")


def internal_error() -> Response:
    """The response to an unexpected error: fixed text; the log has the details."""
    return problem(500, "internal", INTERNAL_ERROR_TEXT)


async def handle_error(_: Request, error: Exception) -> Response:
    """Respond to one of the platform's errors."""
    assert isinstance(error, errors.CoterieError)
    status = next((STATUS_OF_KIND[kind] for kind in type(error).__mro__ if kind in STATUS_OF_KIND), 500)
    if status == 500:
        _log.error("upstream error", reason=error.reason, message=error.message)
        return internal_error()
    return problem(status, error.reason, error.message, details=error.details)


async def handle_invalid(_: Request, error: Exception) -> Response:
    """Respond to a body, path or query that does not match the schema: 400, naming the first wrong field."""
    assert isinstance(error, RequestValidationError)
    faults = [
        {"field": ".".join(str(part) for part in item["loc"]), "message": item["msg"]} for item in error.errors()[:20]
    ]
    first = faults[0]
    return problem(
        400,
        errors.InvalidInput.reason,
        f"{first['field']}: {first['message']}",
        details={"field": first["field"], "faults": faults},
    )


async def handle_http(_: Request, error: Exception) -> Response:
    """Respond to an unknown path or method."""
    assert isinstance(error, HTTPException)
    reason = {400: errors.InvalidInput.reason, 404: "unknown_path", 405: "method_not_allowed"}.get(
        error.status_code, "refused"
    )
    return problem(error.status_code, reason, str(error.detail), headers=error.headers)

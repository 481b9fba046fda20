"""The OpenAPI document: FastAPI's, completed from the access table with security, roles and problem responses."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

from coterie.records import Problem
from services.gateway.access.table import ACCESS, NO_ROLES, PUBLIC
from services.gateway.schemas.base import DIGEST_PATTERN
from services.gateway.wire.plain_routes import declared
from services.gateway.wire.responses import TITLE_OF_STATUS

TITLE, VERSION = "Coterie", "1"
DESCRIPTION = """REST API of Coterie for devices, publishers and admins.

Send the API key as `Authorization: Bearer <key>`. Errors are `application/problem+json`; branch on `reason`, show
`detail`. Every response has an `X-Request-Id`, which echoes yours if it is valid. Lists page by `limit` and `cursor`.
Times are Unix seconds, money is integer micro-credits, bytes are base64. Uploads stream and are safe to repeat."""
DIGEST_PARAMETER: dict[str, Any] = {
    "name": "Coterie-Digest",
    "in": "header",
    "required": True,
    "description": "SHA-256 of the body.",
    "schema": {"type": "string", "pattern": DIGEST_PATTERN},
}
ASSETS = "/docs-assets"
_INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
BLOB_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The bytes.", "content": _BINARY},
    206: {"description": "The requested range of bytes.", "content": _BINARY},
    304: {"description": "The caller has the current version."},
    416: {"description": TITLE_OF_STATUS[416]},
}
CSV_RESPONSE: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}
_PROBLEM = TypeAdapter(Problem)
_EXAMPLE = {
    "example": Problem(
        type="urn:coterie:problem:unknown_task",
        title="Not found",
        status=404,
        detail="no task tsk_01jd0e; list tasks to see all",
        reason="unknown_task",
        request_id="9f2c4e1ab0d37788",
    ).to_dict()
}
_ALWAYS = (400, 413, 500, 503)
_AUTHENTICATED = (401, 403, 404, 409, 422)


def complete_openapi(app: FastAPI) -> dict[str, Any]:
    """Return the document; built once."""
    if app.openapi_schema is None:
        document = get_openapi(title=TITLE, version=VERSION, description=DESCRIPTION, routes=declared(app.routes))
        components = document.setdefault("components", {})
        components.setdefault("schemas", {})["Problem"] = _PROBLEM.json_schema(mode="serialization") | _EXAMPLE
        for unused in ("HTTPValidationError", "ValidationError"):
            components["schemas"].pop(unused, None)
        components["securitySchemes"] = {"api_key": {"type": "http", "scheme": "bearer"}}
        for path in document["paths"].values():
            for operation in path.values():
                _complete(operation)
        app.openapi_schema = document
    return app.openapi_schema


def serve_docs(app: FastAPI) -> None:
    """Serve the interactive page at /docs with local scripts and styles, so that it works without internet."""
    page = get_swagger_ui_html(
        openapi_url="/openapi.json",
        title=TITLE,
        swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{ASSETS}/favicon.png",
    )

    page.headers["Content-Security-Policy"] = _policy(bytes(page.body).decode())

    async def docs(request: Request) -> HTMLResponse:
        return page

    app.mount(ASSETS, StaticFiles(packages=[("fastapi_offline", "static")]))
    app.add_route("/docs", docs, include_in_schema=False)


def _policy(page: str) -> str:
    """Build the content security policy: scripts of this server and of the page itself, and no other host."""
    inline = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in _INLINE.findall(page)]
    return (
        f"default-src 'none'; script-src 'self' {' '.join(inline)}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _complete(operation: dict[str, Any]) -> None:
    roles = ACCESS.get(operation["operationId"], NO_ROLES)
    public = roles is PUBLIC
    audience = "all callers, without a key" if public else ", ".join(sorted(roles))
    operation["description"] = f"{operation.get('description', '')}\n\nOpen to: {audience}.".strip()
    operation["security"] = [] if public else [{"api_key": []}]
    responses = operation["responses"]
    responses.pop("422", None)
    simple = public and "requestBody" not in operation  # such a request has no role and no body to refuse
    for status in _ALWAYS if simple else _ALWAYS + _AUTHENTICATED:
        responses.setdefault(str(status), _problem(status))


def _problem(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": TITLE_OF_STATUS[status], "content": {"application/problem+json": {"schema": schema}}}

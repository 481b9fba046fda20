"""Downloads of models and CSV files, streamed from the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse

from coterie.errors import CoterieError, Refused
from services.console.components.contexts import AppContext, PageContext
from services.console.components.frame import sign_in_address
from services.console.errors import SignedOut

CHUNK_BYTES = 1 << 18
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
Id = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")]
IdFilter = Annotated[str, Query(pattern=r"^[A-Za-z0-9_.:-]{0,128}$")]


def files(app: AppContext) -> APIRouter:
    """Build the routes of downloads."""
    routes = APIRouter(prefix="/files")

    @routes.get("/models/{digest}")
    async def model(request: Request, digest: Digest) -> Response:
        return await _download(app, request, f"/v1/models/{digest}", f"model-{digest[:12]}.safetensors")

    @routes.get("/statements/{account}")
    async def statement(request: Request, account: Id) -> Response:
        name = f"statement-{account.replace(':', '-')}.csv"
        return await _download(app, request, f"/v1/accounts/{account}/statement", name, format="csv")

    @routes.get("/payments")
    async def payments(request: Request, task: IdFilter = "", device: IdFilter = "", owner: IdFilter = "") -> Response:
        return await _download(
            app, request, "/v1/payments", "payments.csv", task=task, device=device, owner=owner, format="csv"
        )

    return routes


async def _download(app: AppContext, request: Request, path: str, name: str, **params: str) -> Response:
    session = app.session_of(request.cookies)
    if session is None:
        return RedirectResponse(sign_in_address(request), 303)
    app.sessions.touch(session)
    stack = AsyncExitStack()
    try:
        response = await stack.enter_async_context(
            PageContext.of(app, session, request).platform.stream(path, **params)
        )
    except SignedOut as error:
        return RedirectResponse(sign_in_address(request, str(error)), 303)
    except CoterieError as error:
        status = error.status if isinstance(error, Refused) and error.status else 503
        return PlainTextResponse(f"The download failed: {error}", status)

    async def chunks() -> AsyncIterator[bytes]:
        async with stack:
            async for chunk in response.aiter_bytes(CHUNK_BYTES):
                yield chunk

    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    if "content-length" in response.headers and "content-encoding" not in response.headers:
        headers["Content-Length"] = response.headers["content-length"]
    return StreamingResponse(chunks(), headers=headers, media_type=response.headers.get("content-type"))

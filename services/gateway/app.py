"""The gateway put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from services.gateway import documents
from services.gateway.answers import Json, refuse, refuse_http, refuse_invalid
from services.gateway.edge import Edge
from services.gateway.parts import Parts
from services.gateway.routes import FAMILIES
from services.gateway.settings import GatewaySettings
from services.kit.errors import CoterieError


def build(settings: GatewaySettings) -> FastAPI:
    """The ASGI application; its parts are opened when it starts and closed when it stops."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        parts = Parts.open(settings)
        app.state.parts = parts
        yield
        await parts.platform.close()

    app = FastAPI(
        title=documents.TITLE,
        version=documents.VERSION,
        description=documents.DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        default_response_class=Json,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # `Edge` measures; asking costs every request
        exception_handlers={
            CoterieError: refuse,
            RequestValidationError: refuse_invalid,
            HTTPException: refuse_http,
        },
    )
    for family in FAMILIES:
        app.router.routes.extend(family.routes.routes)
    documents.serve_docs(app)
    app.add_middleware(Edge)
    app.openapi = partial(documents.complete_openapi, app)  # type: ignore[method-assign]
    return app

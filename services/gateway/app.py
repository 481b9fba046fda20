"""The gateway put together: the only file that knows all the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from services.gateway.access.door import Door
from services.gateway.access.wrong_keys import WrongKeys
from services.gateway.routes import FAMILIES
from services.gateway.routes.base import Parts
from services.gateway.routes.express import Express
from services.gateway.settings import GatewaySettings
from services.gateway.usecases.heartbeats import Pulse
from services.gateway.usecases.polls import Patience
from services.gateway.wire import documents
from services.gateway.wire.answers import Json, refuse, refuse_http, refuse_invalid
from services.gateway.wire.edge import Edge
from services.gateway.wire.finder import Finder
from services.kit.blobs import BlobStore
from services.kit.errors import CoterieError
from services.kit.stubs import Upstreams


def build(settings: GatewaySettings) -> FastAPI:
    """The ASGI application; its parts are opened when it starts and closed when it stops."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        parts = _open(settings)
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
    app.router.middleware_stack = Finder(app.router)
    app.add_middleware(Edge, short=Express(app).serve)
    app.openapi = partial(documents.complete_openapi, app)  # type: ignore[method-assign]
    return app


def _open(settings: GatewaySettings) -> Parts:
    """What routes are given, built from settings; call from within the event loop."""
    platform = Upstreams.open(settings)
    return Parts(
        settings,
        platform,
        BlobStore.from_settings(settings),
        Door(
            platform.registry,
            WrongKeys(settings.max_wrong_keys),
            seconds=settings.key_cache_seconds,
            size=settings.key_cache_size,
        ),
        Pulse(platform.registry),
        Patience(),
    )

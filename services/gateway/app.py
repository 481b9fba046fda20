"""Composition root of the gateway: the only file that knows all the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from services.gateway.access.authenticator import Authenticator
from services.gateway.access.wrong_keys import WrongKeys
from services.gateway.routes import ROUTERS
from services.gateway.routes.base import Dependencies
from services.gateway.settings import GatewaySettings
from services.gateway.usecases.heartbeats import HeartbeatBatcher
from services.gateway.usecases.long_polls import LongPoller
from services.gateway.wire import openapi
from services.gateway.wire.middleware import RequestMiddleware
from services.gateway.wire.plain_routes import served
from services.gateway.wire.responses import JsonResponse, handle_error, handle_http, handle_invalid
from services.kit.database.blobs import BlobStore
from services.kit.errors import CoterieError
from services.kit.rpc.service_clients import ServiceClients


def build(settings: GatewaySettings) -> FastAPI:
    """Make the ASGI application; its lifespan opens and closes the dependencies."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        dependencies = _open(settings)
        app.state.dependencies = dependencies
        yield
        await dependencies.platform.close()

    app = FastAPI(
        title=openapi.TITLE,
        version=openapi.VERSION,
        description=openapi.DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        default_response_class=JsonResponse,
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
        },  # the middleware measures; FastAPI's checks cost every request
        exception_handlers={
            CoterieError: handle_error,
            RequestValidationError: handle_invalid,
            HTTPException: handle_http,
        },
    )
    app.router.routes.extend(served(route for module in ROUTERS for route in module.router.routes))
    openapi.serve_docs(app)
    app.add_middleware(RequestMiddleware)
    app.openapi = partial(openapi.complete_openapi, app)  # type: ignore[method-assign]
    return app


def _open(settings: GatewaySettings) -> Dependencies:
    """Build the dependencies of routes; call from within the event loop."""
    platform = ServiceClients.open(settings)
    return Dependencies(
        settings=settings,
        platform=platform,
        blobs=BlobStore.from_settings(settings),
        authenticator=Authenticator(
            platform.registry,
            WrongKeys(settings.max_wrong_keys),
            seconds=settings.key_cache_seconds,
            size=settings.key_cache_size,
        ),
        heartbeats=HeartbeatBatcher(platform.registry),
        long_poller=LongPoller(),
    )

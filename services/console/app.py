"""Composition root of the console."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie
from pathlib import Path

from fastapi import FastAPI
from nicegui import app as pages_app
from nicegui import core, ui
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from services.console.access.middleware import BrowserPolicy
from services.console.access.sessions import Sessions
from services.console.access.sign_in import sign_in_routes
from services.console.components.contexts import AppContext
from services.console.components.frame import Pages
from services.console.components.plain_pages import fault, not_found
from services.console.pages import register
from services.console.settings import ConsoleSettings
from services.console.wire.directory import Directory
from services.console.wire.files import files
from services.console.wire.graphs import Graphs
from services.console.wire.platform import GatewayClient
from services.console.wire.reports import Reports
from services.kit.observability.logs import get_logger

_log = get_logger()
STATIC = Path(__file__).parent / "static"
MANIFEST = {
    "name": "Coterie",
    "short_name": "Coterie",
    "description": "What my devices learn, share and earn",
    "start_url": "/me",
    "scope": "/",
    "display": "standalone",
    "background_color": "#f6f7f9",
    "theme_color": "#0f6b6b",
    "icons": [{"src": "/static/mark.svg", "sizes": "any", "type": "image/svg+xml", "purpose": "any maskable"}],
}


def build(settings: ConsoleSettings) -> FastAPI:
    """Build the ASGI application; NiceGUI registers pages per process, so build one per process."""
    context = AppContext(
        settings=settings,
        sessions=Sessions(idle_seconds=settings.console_idle_seconds, session_seconds=settings.console_session_seconds),
        gateway=GatewayClient(settings.gateway_url, settings.gateway_ca),
        directory=Directory(),
        graphs=Graphs(),
        reports=Reports(),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await context.gateway.close()

    app = FastAPI(title="Coterie console", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.mount("/static", StaticFiles(directory=STATIC))
    app.include_router(sign_in_routes(context))
    app.include_router(files(context))
    app.add_api_route("/health/live", _live)
    app.add_api_route("/manifest.webmanifest", _manifest)
    register(Pages(context))
    pages_app.add_exception_handler(404, _missing)
    pages_app.add_exception_handler(Exception, _failed)
    pages_app.config.socket_io_js_transports = ["websocket"]
    core.sio.eio.cors_allowed_origins = []  # BrowserPolicy checks origins
    ui.run_with(
        app,
        title="Coterie",
        favicon=STATIC / "mark.svg",
        language="en-US",
        dark=None,
        tailwind=False,
        binding_refresh_interval=None,
        reconnect_timeout=20.0,
        show_welcome_message=False,
    )

    def signed_in(scope: Scope) -> bool:
        header = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie"), "")
        cookies = {name: morsel.value for name, morsel in SimpleCookie(header).items()}
        return context.session_of(cookies) is not None

    app.add_middleware(BrowserPolicy, url=settings.console_url, https=settings.https, signed_in=signed_in)
    return app


async def _missing(request: Request, _: Exception) -> Response:
    return not_found(request.url.path)


async def _failed(request: Request, error: Exception) -> Response:
    fault_id = uuid.uuid4().hex[:12]
    _log.error("page failed", page=request.url.path, fault_id=fault_id, exc_info=error)
    return fault(fault_id)


async def _live() -> JSONResponse:
    return JSONResponse({"status": "serving"})


async def _manifest() -> JSONResponse:
    return JSONResponse(MANIFEST, media_type="application/manifest+json")

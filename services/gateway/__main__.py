"""`python -m services.gateway`: serve REST until SIGTERM or SIGINT."""

from __future__ import annotations

import socket
import sys
from typing import cast

import uvicorn
from fastapi import FastAPI

from coterie.version import VERSION, commit
from services.gateway.routes.base import Dependencies
from services.gateway.settings import GatewaySettings
from services.kit.http.http_limits import limited, run
from services.kit.observability import logs, metrics, traces
from services.kit.runtime import data_dir
from services.kit.runtime.process import freeze_gc, pause_gc

BACKLOG = 2048


class GatewayServer(uvicorn.Server):
    """Uvicorn, but shutdown first ends the long polls, so that draining is fast."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        freeze_gc()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        dependencies = cast(Dependencies, cast(FastAPI, self.config.app).state.dependencies)
        dependencies.long_poller.stop()
        await super().shutdown(sockets)


def server(settings: GatewaySettings) -> GatewayServer:
    """Make the server of the gateway."""
    from services.gateway.app import build  # takes a second; garbage collection is paused until then

    config = uvicorn.Config(
        build(settings),
        host=settings.bind,
        port=settings.gateway_port,
        loop="uvloop",
        http=limited(settings),
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
    )
    return GatewayServer(config)


def main() -> None:
    """Read the environment and serve."""
    pause_gc()
    settings = GatewaySettings()
    logs.configure("gateway", level=settings.log_level)
    try:
        data_dir.prepare(settings)
        traces.configure("gateway", settings.otlp_endpoint)
    except ValueError as error:
        sys.exit(f"error: {error}")
    metrics.serve(settings.metrics_port, settings.bind)
    logs.get_logger().info(
        "gateway starts",
        address=f"http://{settings.bind}:{settings.gateway_port}",
        version=VERSION,
        commit=commit(),
    )
    run(server(settings))


if __name__ == "__main__":
    main()

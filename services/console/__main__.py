"""`python -m services.console`: serve the pages until SIGTERM or SIGINT."""

from __future__ import annotations

import uvicorn

from services.console.app import build
from services.console.settings import ConsoleSettings
from services.kit.http.http_limits import limited, run
from services.kit.observability import logs, metrics


def build_server(settings: ConsoleSettings) -> uvicorn.Server:
    """Build the console's HTTP server."""
    config = uvicorn.Config(
        build(settings),
        host=settings.bind,
        port=settings.console_port,
        loop="uvloop",
        http=limited(settings),
        ws="websockets-sansio",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,  # open pages reconnect by themselves
    )
    return uvicorn.Server(config)


def main() -> None:
    settings = ConsoleSettings()
    logs.configure("console", level=settings.log_level)
    metrics.serve(settings.metrics_port, settings.bind)
    logs.get_logger().info("console started", address=f"http://{settings.bind}:{settings.console_port}")
    run(build_server(settings))


if __name__ == "__main__":
    main()

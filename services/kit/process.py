"""A service as a process: logs, metrics, start, wait for a signal, drain, stop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Protocol

import uvloop

from services.kit import logs, metrics
from services.kit.server import run_until_signal
from services.kit.settings import ServiceSettings


class App(Protocol):
    """What a composition root offers."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


async def serve(name: str, settings: ServiceSettings, app: App) -> None:
    """Runs `app` until SIGTERM or SIGINT."""
    logs.configure(name, level=settings.log_level)
    metrics.serve(settings.metrics_port, settings.bind)
    await app.start()
    logs.get_logger().info("serving")
    await run_until_signal([app.stop])
    logs.get_logger().info("stopped")


def run(main: Coroutine[object, object, None]) -> None:
    """Runs a service's main coroutine; a setting that cannot work ends it with one line instead of a traceback."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)
    except ValueError as error:
        sys.exit(f"error: {error}")

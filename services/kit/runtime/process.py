"""A service as a process: logs, metrics, start, wait for a signal, drain, stop."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from typing import Protocol

import uvloop

from coterie.version import VERSION, commit
from services.kit.observability import logs, metrics, traces
from services.kit.rpc.server import run_until_signal
from services.kit.runtime import data_dir
from services.kit.runtime.settings import ServiceSettings


class App(Protocol):
    """What a composition root offers."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


RARELY = (20_000, 20, 20)
"""Objects made between two looks for garbage in cycles, and looks between two at older objects. A request makes a few
hundred objects and hardly a cycle; looking through all that lives took up to a third of the gateway's time."""


async def serve(name: str, settings: ServiceSettings, build: Callable[[], App]) -> None:
    """Builds a service and runs it until SIGTERM or SIGINT."""
    logs.configure(name, level=settings.log_level)
    data_dir.prepare(settings)
    metrics.serve(settings.metrics_port, settings.bind)
    traces.configure(name, settings.otlp_endpoint)
    app = build()
    await app.start()
    settle_memory()
    logs.get_logger().info("serving", version=VERSION, commit=commit())
    await run_until_signal([app.stop])
    logs.get_logger().info("stopped")


def spare_garbage() -> None:
    """A start makes modules, which stay: to look for garbage among them would be a tenth of it."""
    gc.disable()


def settle_memory() -> None:
    """What lives now, modules above all, lives for good: it is not looked through again, and the rest rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*RARELY)
    gc.enable()


def run(main: Coroutine[object, object, None]) -> None:
    """Runs a service's main coroutine; a setting that cannot work ends it with one line instead of a traceback."""
    spare_garbage()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)
    except ValueError as error:
        sys.exit(f"error: {error}")

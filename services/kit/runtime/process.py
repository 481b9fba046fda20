"""Run a service as a process: logs, metrics, start, wait for a signal, drain, stop."""

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
    """A composition root."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


GC_THRESHOLDS = (20_000, 20, 20)
"""gc.set_threshold values: collect rarely, because requests create almost no cycles."""


async def serve(name: str, settings: ServiceSettings, build: Callable[[], App]) -> None:
    """Build a service and run it until SIGTERM or SIGINT."""
    logs.configure(name, level=settings.log_level)
    data_dir.prepare(settings)
    metrics.serve(settings.metrics_port, settings.bind)
    traces.configure(name, settings.otlp_endpoint)
    app = build()
    await app.start()
    freeze_gc()
    logs.get_logger().info("serving", version=VERSION, commit=commit())
    await run_until_signal([app.stop])
    logs.get_logger().info("stopped")


def pause_gc() -> None:
    """Disable garbage collection during start: modules are never garbage, and scanning them costs time."""
    gc.disable()


def freeze_gc() -> None:
    """Exclude all present objects, mostly modules, from garbage collection; collect the others rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def run(main: Coroutine[object, object, None]) -> None:
    """Run a service's main coroutine; exit with one line instead of a traceback on an invalid setting."""
    pause_gc()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)
    except ValueError as error:
        sys.exit(f"error: {error}")

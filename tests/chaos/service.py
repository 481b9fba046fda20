"""A service of the platform on a machine whose clock is wrong: `python -m tests.chaos.service NAME`.

`CHAOS_CLOCK_SECONDS` says by how much. What counts evenly (monotonic time) is left alone, as on a real machine. gRPC
keeps the true clock: it turns time limits into moments in Python and holds them against the machine's clock in C.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from importlib import import_module
from types import SimpleNamespace


def main() -> None:
    """Sets the clock wrong and becomes the service."""
    off = float(os.environ.get("CHAOS_CLOCK_SECONDS", "0"))
    true = time.time
    right = SimpleNamespace(time=true, sleep=time.sleep, monotonic=time.monotonic)
    for module in ("grpc._channel", "grpc._cython.cygrpc", "grpc.aio._utils"):
        vars(import_module(module))["time"] = right
    time.time = lambda: true() + off
    name = f"services.{sys.argv[1]}"
    sys.argv = [name]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

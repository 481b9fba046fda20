"""Demos: each starts its own platform, runs a task among real agents and shows the results.

A demo is a function registered with `@register_demo("name", "what it shows")`; `coterie demo name` runs it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

Runner: TypeAlias = Callable[["DemoOptions"], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of `coterie demo`.

    Attributes:
        rounds: rounds to run; 0 = the demo's default.
        devices: devices; 0 = the demo's default.
        seed: seed of data, models and training.
        garbage_device: one device delivers garbage and loses trust.
        quiet: print only the result.
    """

    rounds: int = 0
    devices: int = 0
    seed: int = 0
    garbage_device: bool = False
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Demo:
    """A demo; `run` returns its results as plain values."""

    name: str
    about: str
    run: Runner


_DEMOS: dict[str, Demo] = {}


def register_demo(name: str, about: str) -> Callable[[Runner], Runner]:
    """Register a demo under a name."""

    def register(run: Runner) -> Runner:
        _DEMOS[name] = Demo(name, about, run)
        return run

    return register


@cache
def demos() -> dict[str, Demo]:
    """Return all demos by name; every module of this package registers its own."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(_DEMOS)

"""How a device does a round's work: one strategy per combination, chosen by the work item's axes.

A strategy is a class with one method:

    class Star:
        def prepare(self, context: RoundContext) -> Delivery: ...

It is called once per round, may be called again for the same round after a crash, and either returns what to hand in
or raises `Declined` with the reason. What it returns is stored before it is sent, so a repeat sends the same bytes.
Register it with `@strategy("star")`; naming a privacy or an incentive narrows it to that one. One that masks its
update where the work has the terms of a secure sum says `masks = True`; others are not given such work.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Protocol, TypeVar

from coterie.agent.report import Delivery
from coterie.errors import Declined
from coterie.records import WorkItem
from coterie.strategies.context import RoundContext


class Strategy(Protocol):
    """One way to do a round's work."""

    def prepare(self, context: RoundContext) -> Delivery:
        """Does the work and returns what to hand in, or raises `Declined`."""
        ...


P = TypeVar("P", bound=type[Strategy])
_REGISTRY: dict[tuple[str, str, str], type[Strategy]] = {}


def strategy(topology: str, *, privacy: str = "", incentive: str = "") -> Callable[[P], P]:
    """Registers a class for a topology, and if given for one privacy or incentive alone."""

    def register(kind: P) -> P:
        _REGISTRY[topology, privacy, incentive] = kind
        return kind

    return register


def strategy_for(work: WorkItem) -> Strategy:
    """The strategy that fits a work item best: the most particular one registered."""
    _load_all()
    for privacy in (work.privacy, ""):
        for incentive in (work.incentive, ""):
            found = _REGISTRY.get((work.topology, privacy, incentive))
            if found is not None and work.sum and not getattr(found, "masks", False):
                raise Declined(
                    "this version does such work in the clear only, and the task asks for it in a secure sum; "
                    "upgrade the package coterie"
                )
            if found is not None:
                return found()
    raise Declined(
        f"this version knows no strategy for topology {work.topology!r}, privacy {work.privacy!r}, "
        f"incentive {work.incentive!r}; upgrade the package coterie"
    )


def sums_apart(topology: str) -> bool:
    """Whether parts of a task's devices are secure sums of their own: strategies of this topology say so."""
    _load_all()
    return any(getattr(kind, "sums_apart", False) for (home, *_), kind in _REGISTRY.items() if home == topology)


@cache
def _load_all() -> None:
    """Imports every module of this package, so that each registers itself."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")

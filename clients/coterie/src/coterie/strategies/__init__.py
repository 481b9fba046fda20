"""Device strategies: how a device does a round's work, chosen by the work item's topology, privacy and incentive.

A strategy is a class with one method and the combinations it serves, in which "" stands for any:

    class Mesh:
        serves = (("mesh", "", ""),)

        def prepare(self, context: RoundContext) -> Delivery: ...

`prepare` is called once per round, and again for the same round after a crash. It returns the delivery or raises
`Declined` with the reason. The delivery is stored before it is sent, so a repeat sends the same bytes. A strategy that
masks its update when the work has the terms of a secure sum declares `masks = True`; others do not get such work.

Built-in strategies are listed in `REGISTRY`; other distributions register theirs as entry points of the group
`coterie.device_strategies`. The server half of each strategy has the same file name in
`services/aggregation/strategies`.
"""

from __future__ import annotations

from functools import cache
from typing import Protocol

from coterie.agent.report import Delivery
from coterie.errors import Declined
from coterie.plugins import Registry
from coterie.records import WorkItem
from coterie.strategies.context import RoundContext

Axes = tuple[str, str, str]


class Strategy(Protocol):
    """One way to do a round's work."""

    def prepare(self, context: RoundContext) -> Delivery:
        """Do the work and return the delivery, or raise `Declined`."""
        ...


def _require_strategy(item: object) -> type[Strategy]:
    if not (isinstance(item, type) and callable(getattr(item, "prepare", None))):
        raise TypeError(f"{item!r} is not a class with the method prepare(context)")
    serves = getattr(item, "serves", ())
    if not serves or not all(isinstance(axes, tuple) and len(axes) == 3 and axes[0] for axes in serves):
        raise TypeError(f"{item.__name__}.serves must list combinations of topology, privacy and incentive")
    return item


REGISTRY = Registry(
    "coterie.device_strategies",
    {
        "answer_sale": "coterie.strategies.answer_sale:AnswerSale",
        "budget_sale": "coterie.strategies.budget_sale:BudgetSale",
        "cells": "coterie.strategies.cells:Cells",
        "clusters": "coterie.strategies.clusters:Clusters",
        "mesh": "coterie.strategies.mesh:Mesh",
        "star": "coterie.strategies.star:Star",
    },
    _require_strategy,
)


def strategy_for(work: WorkItem) -> Strategy:
    """Return the most specific strategy that serves a work item."""
    for privacy in (work.privacy, ""):
        for incentive in (work.incentive, ""):
            kind = _strategies().get((work.topology, privacy, incentive))
            if kind is None:
                continue
            if work.sum and not getattr(kind, "masks", False):
                raise Declined(
                    "this version does such work in the clear only, and the task asks for it in a secure sum; "
                    "upgrade the package coterie"
                )
            return kind()
    raise Declined(
        f"this version knows no strategy for topology {work.topology!r}, privacy {work.privacy!r}, "
        f"incentive {work.incentive!r}; upgrade the package coterie, or install the plug-in{REGISTRY.advice}"
    )


def sums_apart(topology: str) -> bool:
    """Whether secure sums of this topology are of a part of the task's devices each."""
    return any(getattr(kind, "sums_apart", False) for axes, kind in _strategies().items() if axes[0] == topology)


@cache
def _strategies() -> dict[Axes, type[Strategy]]:
    """The strategy of each combination; a plug-in that claims a taken combination is left out."""
    strategies: dict[Axes, type[Strategy]] = {}
    for name, kind in REGISTRY.load_all().items():
        serves: tuple[Axes, ...] = getattr(kind, "serves", ())
        taken = [axes for axes in serves if axes in strategies]
        if taken:
            REGISTRY.reject(name, "; ".join(f"{axes} has a device strategy already" for axes in taken))
            continue
        strategies.update(dict.fromkeys(serves, kind))
    return strategies

"""How a task wants its devices to train, in numbers; checked when a task is made and again on each device."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coterie.errors import Declined

CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class Instructions:
    """What `Learner.train` is told.

    `proximal` is μ of FedProx (T. Li and others, "Federated optimization in heterogeneous networks", MLSys 2020): each
    step also pulls towards the round's model w⁰, as the gradient of μ/2·‖w − w⁰‖² does. `custom` is for the author's
    own code; nothing else reads it.
    """

    epochs: int = 1
    batch_size: int = 32
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    proximal: float = 0.0
    custom: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, training: Mapping[str, Any], batch_size: int = 0) -> Instructions:
        """From a work item: `batch_size` above 0 replaces the training object's; strategies read other keys."""
        known = {name: training[name] for name in cls.__slots__ if name in training}
        if batch_size:
            known["batch_size"] = batch_size
        for name, value in known.items():
            fault = _fault(name, value)
            if fault:
                raise Declined(f"the task's training makes no sense: {fault}")
        return cls(**known)


@dataclass(frozen=True, slots=True)
class _Number:
    """What a key of the training object may be: whole or not, and its ends."""

    whole: bool
    least: float
    most: float = math.inf
    above: bool = False

    def fault(self, name: str, value: object) -> str:
        kind = "a whole number" if self.whole else "a number"
        limits = f"above {self.least:g}" if self.above else f"of at least {self.least:g}"
        limits += f" and at most {self.most:g}" if math.isfinite(self.most) else ""
        wanted = f"training.{name} must be {kind} {limits}, not {str(value)[:40]!r}"
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return wanted
        number = float(value) if isinstance(value, int | float) else math.nan
        low = number > self.least if self.above else number >= self.least
        return "" if math.isfinite(number) and low and number <= self.most else wanted


KNOWN: dict[str, _Number] = {
    "epochs": _Number(True, 0),
    "batch_size": _Number(True, 1),
    "learning_rate": _Number(False, 0),
    "momentum": _Number(False, 0, 1),
    "weight_decay": _Number(False, 0),
    "clip_norm": _Number(False, 0, above=True),
    "proximal": _Number(False, 0),
    "steps": _Number(True, 1, 10_000),
    "batches": _Number(True, 1, 1_000),
    "least_budget": _Number(False, 0, above=True),
    "learning_rate_decay": _Number(False, 0, 1, above=True),
}
"""Keys of a task's training object: those of `Instructions`, then those that single strategies read."""


def check_training(training: Mapping[str, Any]) -> None:
    """Raises ValueError for a key nobody reads, a wrong type or a value that makes no sense."""
    for name, value in training.items():
        if name not in KNOWN and name != CUSTOM:
            raise ValueError(
                f"training has no key {name[:40]!r}{nearest(name, [*KNOWN, CUSTOM])}; what your own code reads goes "
                f"under training.{CUSTOM}"
            )
        fault = _fault(name, value)
        if fault:
            raise ValueError(fault)


def nearest(name: str, known: Iterable[str]) -> str:
    """ ", did you mean …?" where a known name is close, else the known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    return f", did you mean {close[0]!r}?" if close else f" (known: {', '.join(names)})"


def _fault(name: str, value: object) -> str:
    if name == CUSTOM:
        return "" if isinstance(value, Mapping) else "training.custom must be an object"
    return KNOWN[name].fault(name, value)

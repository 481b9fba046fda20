"""The direction in which a metric improves: as its author declares, otherwise by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Better: TypeAlias = Literal["up", "down"]
ARROWS: dict[str, str] = {"up": "↑", "down": "↓"}
_BELOW = ("loss", "error", "perplexity", "mse", "mae", "brier", "regret", "nll")
_ABOVE = ("accuracy", "precision", "recall", "f1", "auc", "r2")


@dataclass(frozen=True, slots=True)
class Metric:
    """A function that makes a figure of what a model gives, and which way the figure gets better."""

    function: Callable[..., Any]
    better: Better = "up"


def metric_of(name: str, given: Metric | Callable[..., Any]) -> Metric:
    """The metric given; of a bare function, better the way its name says."""
    return given if isinstance(given, Metric) else Metric(given, better_of(name))


def better_of(name: str) -> Better:
    """Which way is better by a figure's name: down for losses and errors, else up."""
    return known_of(name) or "up"


def known_of(name: str) -> Better | None:
    """Which way is better, where a figure's name leaves no doubt."""
    if any(word in name.lower() for word in _BELOW):
        return "down"
    return "up" if any(word in name.lower() for word in _ABOVE) else None


def headed(name: str, declared: Mapping[str, str]) -> str:
    """A figure's name as tables head it, with the way it gets better, where a device or the name says it."""
    arrow = ARROWS.get(declared.get(name) or known_of(name) or "")
    return f"{name} {arrow}" if arrow else name

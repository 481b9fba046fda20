"""Which way a figure gets better: as its author says, else by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Better: TypeAlias = Literal["up", "down"]
ARROWS: dict[str, str] = {"up": "↑", "down": "↓"}
_BETTER_BELOW = ("loss", "error", "perplexity", "mse", "mae", "brier", "regret", "nll")


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
    return "down" if any(word in name.lower() for word in _BETTER_BELOW) else "up"


def headed(name: str, told: Mapping[str, str]) -> str:
    """A figure's name as tables head it, with the way it gets better by what the task was told, else by its name."""
    return f"{name} {ARROWS.get(told.get(name, ''), ARROWS[better_of(name)])}"

"""Curves, remaining time and contributions of a task's rounds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from coterie.records import Event, Participation, Round, Task
from coterie.records.enums import EventKind, RoundState, TaskState
from services.console.domain import words

Point = tuple[float, float]
Curve = tuple[str, list[Point]]
FIRST = ("accuracy", "loss", "estimate", "standard_error", "regret", "update_norm")
"""Metrics that come first, in this order; the others follow by name."""
_OF_MODEL = re.compile(r"^(?P<name>.+)\[(?P<line>\d+)\]$")


def metric_names(rounds: Iterable[Round]) -> list[str]:
    """Return every metric of the rounds; `accuracy[0]`, that of model line 0, belongs to `accuracy`."""
    result = {name_of(name)[0] for item in rounds for name in item.metrics}
    return sorted(result, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))


def name_of(metric: str) -> tuple[str, str]:
    """Split a metric into its name and its model line."""
    match = _OF_MODEL.match(metric)
    return (match["name"], f"model {match['line']}") if match else (metric, "all")


def figure_of(metrics: Mapping[str, float], name: str) -> str:
    """Format a metric; if only model lines have it, list their values in order."""
    if name in metrics:
        return words.number(metrics[name])
    lines = sorted((name_of(metric)[1], value) for metric, value in metrics.items() if name_of(metric)[0] == name)
    return " · ".join(words.number(value) for _, value in lines) or words.number(None)


def warnings_of(events: Iterable[Event]) -> list[str]:
    """Return the warnings of the newest closed round."""
    closings = [event for event in events if event.kind in (EventKind.ROUND_CLOSED, EventKind.ROUND_WARNED)]
    newest = max((event.round for event in closings), default=0)
    return [event.message for event in closings if event.round == newest and event.kind is EventKind.ROUND_WARNED]


def curves(rounds: Sequence[Round], name: str) -> list[Curve]:
    """Return the curves of a metric over the rounds: all models, and each model line."""
    result: dict[str, list[Point]] = {}
    for item in rounds:
        for metric, value in item.metrics.items():
            base, line = name_of(metric)
            if base == name:
                result.setdefault(line, []).append((float(item.number), value))
    return sorted(result.items())


def seconds_left(task: Task, rounds: Sequence[Round]) -> float | None:
    """Estimate the remaining seconds from the median of the last ten rounds; None while unknown."""
    took = [item.done_at - item.opened_at for item in rounds if item.state is RoundState.DONE and item.done_at]
    if not took or task.state is not TaskState.RUNNING:
        return None
    open_or_later = task.specification.rounds - len(took)
    return max(0.0, float(median(took[-10:])) * float(open_or_later))


def contributions(
    participations: Iterable[Participation], head_of: Mapping[str, str] | None = None
) -> list[tuple[str, float]]:
    """Return each device's share of a round's weight, the largest first.

    A head delivers the weight of its whole cluster; `head_of` maps members to heads, so that each member keeps its own
    share. Updates that the task's rule excluded have no share.
    """
    weights = {
        participation.device_id: 0.0 if participation.excluded_because else max(0.0, participation.weight)
        for participation in participations
    }
    own = dict(weights)
    for member, head in (head_of or {}).items():
        if member != head and head in own:
            own[head] = max(0.0, own[head] - weights.get(member, 0.0))
    total = sum(own.values())
    shares = [(device, weight / total) for device, weight in own.items() if weight] if total else []
    return sorted(shares, key=lambda item: (-item[1], item[0]))

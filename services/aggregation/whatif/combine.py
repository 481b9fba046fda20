"""`what-if combine`: what a rule would make of these updates, and whom it would set aside."""

from __future__ import annotations

from typing import Any

from pydantic import Field, StrictFloat

from services.aggregation.domain.rules.axis import rule_for
from services.aggregation.domain.rules.combining import combine
from services.aggregation.domain.rules.rows import ArrayRows
from services.aggregation.errors import BadUpdates
from services.kit.runtime import whatif

LARGEST = 1e150
"""Numbers beyond this have squares that cannot be added."""


class Input(whatif.Input):
    """updates: one list per device; weights ≥ 0 and trust 0–1 per device; pre "nnm" or "bucketing"."""

    rule: str
    updates: list[list[StrictFloat]]
    weights: list[StrictFloat] | None = None
    trust: list[StrictFloat] | None = None
    pre: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)


def solve(input: Input) -> dict[str, Any]:
    """result; used: devices that count; set_aside: the others and why."""
    rule = rule_for(input.rule, input.parameters, input.pre)
    _check(input.updates)
    result, run = combine(rule, ArrayRows.of(input.updates), weights=input.weights, trust=input.trust)
    aside = [{"device": item.device, "why": item.why} for item in run.set_aside]
    return {"result": result, "used": run.used, "set_aside": aside}


def _check(updates: list[list[float]]) -> None:
    if not updates:
        raise BadUpdates("updates: there are none; give one list of numbers per device")
    length = len(updates[0])
    if not length:
        raise BadUpdates("updates.0: is empty; give at least one number per device")
    for device, update in enumerate(updates):
        if len(update) != length:
            raise BadUpdates(f"updates.{device}: has {len(update)} numbers, updates.0 has {length}")
        for place, value in enumerate(update):
            if abs(value) > LARGEST:
                raise BadUpdates(
                    f"updates.{device}.{place}: {value:g} is too large; at most {LARGEST:g} can be combined"
                )

"""`what-if step`: where a server optimiser would move a model."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field, StrictFloat

from services.aggregation.domain.rules.axis import optimiser_for
from services.aggregation.domain.rules.optimisers import Optimiser, State, first_state
from services.aggregation.errors import BadRule, BadUpdates
from services.kit.runtime import whatif


class Input(whatif.Input):
    """state: null at first, then what the last step answered; model and mean_change: lists of the same length."""

    rule: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    state: dict[str, list[StrictFloat]] | None = None
    model: list[StrictFloat]
    mean_change: list[StrictFloat]


def solve(input: Input) -> dict[str, Any]:
    """model and state after the step."""
    optimiser = optimiser_for(input.rule, input.parameters)
    if len(input.mean_change) != len(input.model):
        raise BadUpdates(f"mean_change: has {len(input.mean_change)} numbers, model has {len(input.model)}")
    state = _state(input, optimiser)
    with np.errstate(all="ignore"):
        after = optimiser.remember(state, np.array(input.mean_change))
        model = optimiser.advance(np.array(input.model), after)
    if not all(np.isfinite(values).all() for values in (model, *after.values())):
        raise BadUpdates("mean_change: the step leaves the range of numbers; lower the learning rate or the change")
    return {"model": model, "state": dict(after)}


def _state(input: Input, optimiser: Optimiser) -> State:
    if input.state is None:
        return first_state(optimiser, len(input.model))
    wanted = ", ".join(optimiser.memory)
    for name in [*input.state, *optimiser.memory]:
        if name not in optimiser.memory or name not in input.state:
            what = "is missing" if name not in input.state else "is not part of it"
            raise BadRule(f"state.{name[:50]}: {what}; the state of {input.rule} holds {wanted}; begin with null")
        if len(input.state[name]) != len(input.model):
            raise BadRule(f"state.{name}: has {len(input.state[name])} numbers, model has {len(input.model)}")
    if any(value < 0 for value in input.state.get("v", [])):
        raise BadRule("state.v: squares are not negative")
    return {name: np.array(values) for name, values in input.state.items()}

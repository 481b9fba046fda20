"""`what-if scores`: direct, indirect and combined trust of a network in a file. [SCFL] eqs (1)-(3).

Give `interactions` or `direct`, not both; without either all trust is 0. Omitted keys take the spec's value
where it has one (ω = 0.8) and otherwise the value that leaves their term out of eq (1): no decay, penalty 1, full
duration 1 (`parameters.NEUTRAL`). `now` defaults to the time of the latest interaction. `devices` may be left out and
is then the size of `direct`, or one more than the largest index among the interactions.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from services.kit.errors import InvalidInput, TooLarge
from services.kit.runtime import whatif
from services.trust.domain.graph import Floats, InvalidTrustGraph, check_direct
from services.trust.domain.parameters import NEUTRAL, TrustParameters
from services.trust.domain.scores import Interaction, direct_trust, trust_matrix

MOST_DEVICES = 5_000
"""Largest number of devices: three matrices of this size are a gigabyte of JSON."""


class InteractionInput(whatif.Input):
    """One interaction of two devices, 0-based."""

    a: int = Field(ge=0)
    b: int = Field(ge=0)
    positive: bool
    duration: float = Field(ge=0)
    at: float


class Input(whatif.Input):
    """The question; the module docstring explains absent keys."""

    now: float | None = None
    decay_rate: float = Field(default=NEUTRAL.decay_rate, ge=0)
    penalty: float = Field(default=NEUTRAL.penalty, gt=0)
    full_duration: float = Field(default=NEUTRAL.full_duration_seconds, gt=0)
    direct_weight: float = Field(default=NEUTRAL.direct_weight, ge=0, le=1)
    devices: int | None = Field(default=None, ge=0)
    interactions: list[InteractionInput] | None = None
    direct: list[list[Annotated[float, Field(ge=0, le=1)]]] | None = None


def solve(question: Input) -> dict[str, Any]:
    """Return `direct`, `indirect` and `trust`, n×n, with diagonals 0, 0 and 1."""
    if question.direct is not None and question.interactions is not None:
        raise InvalidInput("give either interactions or direct, not both")
    direct = _given(question) if question.direct is not None else _from_interactions(question)
    matrices = trust_matrix(direct, question.direct_weight)
    return {"direct": matrices.direct, "indirect": matrices.indirect, "trust": matrices.trust}


def _given(question: Input) -> Floats:
    rows = question.direct or []
    for i, row in enumerate(rows):
        if len(row) != len(rows):
            raise InvalidTrustGraph(
                f"direct must be square: it has {len(rows)} rows but row {i} has {len(row)} entries"
            )
    if question.devices is not None and question.devices != len(rows):
        raise InvalidInput(f"devices is {question.devices} but direct has {len(rows)} rows; make them agree")
    return check_direct(rows)


def _from_interactions(question: Input) -> Floats:
    interactions = question.interactions or []
    least = 1 + max((max(item.a, item.b) for item in interactions), default=-1)
    size = least if question.devices is None else question.devices
    if size > MOST_DEVICES:
        raise TooLarge(f"at most {MOST_DEVICES} devices fit into one answer, got {size}; ask about fewer")
    for k, item in enumerate(interactions):
        if max(item.a, item.b) >= size:
            raise InvalidInput(f"interactions[{k}] joins {item.a} and {item.b}, but devices are 0..{size - 1}")
        if item.a == item.b:
            raise InvalidInput(f"interactions[{k}] joins device {item.a} with itself; a and b must differ")
    now = max((item.at for item in interactions), default=0.0) if question.now is None else question.now
    for k, item in enumerate(interactions):
        if item.at > now:
            raise InvalidInput(f"interactions[{k}] at {item.at} is later than now = {now}")
    return _direct(interactions, size, now, _parameters(question))


def _direct(interactions: list[InteractionInput], size: int, now: float, parameters: TrustParameters) -> Floats:
    history: defaultdict[tuple[int, int], list[Interaction]] = defaultdict(list)
    for item in interactions:
        history[min(item.a, item.b), max(item.a, item.b)].append(Interaction(item.positive, item.duration, item.at))
    direct = np.zeros((size, size))
    for (a, b), items in history.items():
        direct[a, b] = direct[b, a] = direct_trust(items, now, parameters)
    return direct


def _parameters(question: Input) -> TrustParameters:
    return TrustParameters(question.decay_rate, question.penalty, question.full_duration, question.direct_weight)

"""A task's rule as its publisher writes it: steps in their order, joined by "+".

    trust + nnm or bucketing + how updates are combined + how the model takes the step

Every step may be left out: "mean", "nnm+trimmed-mean", "fedadam", "trust+centred-clipping+fedavgm". Parameters of all
steps stand together under "rule" in the task's parameters.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from services.aggregation.domain.rules.axis import (
    OPTIMISERS,
    PRES,
    RULES,
    Parameter,
    Rule,
    methods,
    nearest,
    read,
    together,
)
from services.aggregation.domain.rules.mixing import Bucketing
from services.aggregation.domain.rules.optimisers import Optimiser
from services.aggregation.errors import BadRule, UnknownRule

TRUST = "trust"
PLACE = "parameters.rule"


@dataclass(frozen=True, slots=True)
class Choice:
    """A task's rule: how its updates are weighed and combined, and how the model moves.

    `known` are devices the publisher vouches for, from which trust is reckoned.
    """

    name: str
    rule: Rule
    by_trust: bool = False
    optimiser: Optimiser | None = None
    known: tuple[str, ...] = ()

    @property
    def is_mean(self) -> bool:
        """Whether the change is the mean of all updates by their own weights, which sums alone give."""
        return self.rule.name == "mean" and self.rule.pre is None and not self.by_trust

    @property
    def is_plain(self) -> bool:
        """Whether the new model is the old one and the mean change, nothing else."""
        return self.is_mean and self.optimiser is None

    @property
    def is_bendable(self) -> bool:
        """Whether one long update can move the change as far as it likes: a mean, however it is weighed or mixed."""
        return self.rule.name == "mean"

    def of_round(self, seed: int, number: int) -> Rule:
        """The rule of one round: buckets are drawn anew in each, the same on every replica."""
        if not isinstance(self.rule.pre, Bucketing):
            return self.rule
        drawn = random.Random(f"buckets:{seed}:{self.rule.pre.seed}:{number}").getrandbits(62)
        return replace(self.rule, pre=replace(self.rule.pre, seed=drawn))


def choose(name: str, parameters_json: str) -> Choice:
    """The rule of that name, with what the task's parameters say of it."""
    return _choose(name, json.dumps(json.loads(parameters_json).get("rule", {}), sort_keys=True))


@lru_cache(maxsize=256)
def _choose(name: str, told_json: str) -> Choice:
    told = json.loads(told_json)
    if not isinstance(told, dict):
        raise BadRule(f"{PLACE}: must be a JSON object with the rule's parameters")
    trust, pre, method, optimiser = _steps(name)
    tables: list[Mapping[str, Parameter]] = [methods()[method or "mean"].parameters]
    tables += [PRES[pre][0]] if pre else []
    tables += [OPTIMISERS[optimiser][0]] if optimiser else []
    known = _known(told.pop("known", [])) if trust else ()
    values = read(together(*tables), told, name, place=PLACE)
    rule = Rule(
        method or "mean",
        methods()[method or "mean"].make({**values, "centre": None}),
        PRES[pre][1](values) if pre else None,
        int(values.get("f", 0)),
    )
    return Choice(name, rule, bool(trust), _optimiser(optimiser, values), known)


def _known(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadRule(f"{PLACE}.known: must be a list of device ids that you know to be honest, not {value!r}"[:300])
    return tuple(value)


def _optimiser(name: str, values: Mapping[str, Any]) -> Optimiser | None:
    if not name:
        return None
    wanted, make = OPTIMISERS[name]
    return make({key: values[key] for key in wanted})


def _steps(name: str) -> list[str]:
    """The name's parts by step, empty where a step is left out."""
    steps: tuple[Mapping[str, object], ...] = ({TRUST: None}, PRES, methods(), OPTIMISERS)
    result = [""] * len(steps)
    last = -1
    for part in name.split("+"):
        place = next((i for i, names in enumerate(steps) if part in names), None)
        everything = {known: None for names in steps for known in names}
        if place is None:
            known = ", ".join(everything)
            raise UnknownRule(
                f"rule: no rule {part[:50]!r}{nearest(part, everything)}; choose one of: {known}{RULES.advice}"
            )
        if place <= last:
            raise BadRule(f"rule: {part} comes too late in {name[:80]!r}; {_ORDER}")
        result[place], last = part, place
    return result


_ORDER = (
    "the order is trust, then nnm or bucketing, then how updates are combined, then how the model moves, one of each"
)

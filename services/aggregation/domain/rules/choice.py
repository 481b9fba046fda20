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

from coterie.parameters.rules import TrustRuleParameters
from services.aggregation.domain.rules.axis import (
    OPTIMISERS,
    PRES,
    Parameters,
    Rule,
    make_rule,
    methods,
    require_known,
)
from services.aggregation.domain.rules.mixing import Bucketing
from services.aggregation.domain.rules.optimisers import Optimiser
from services.aggregation.errors import BadRule

TRUST = "trust"


@dataclass(frozen=True, slots=True)
class Choice:
    """A task's rule: how its updates are weighed and combined, and how the model moves.

    `known` are devices that the publisher vouches for; trust starts from them.
    """

    name: str
    rule: Rule
    by_trust: bool = False
    optimiser: Optimiser | None = None
    known: tuple[str, ...] = ()

    @property
    def is_mean(self) -> bool:
        """Whether the change is the mean of all updates by their own weights, for which sums suffice."""
        return self.rule.name == "mean" and self.rule.pre is None and not self.by_trust

    @property
    def is_plain(self) -> bool:
        """Whether the new model is the old one and the mean change, nothing else."""
        return self.is_mean and self.optimiser is None

    @property
    def is_bendable(self) -> bool:
        """Whether one long update can move the change without bound, as in every mean."""
        return self.rule.name == "mean"

    def of_round(self, seed: int, number: int) -> Rule:
        """Return the rule of one round; each round draws its own buckets, the same on every replica."""
        if not isinstance(self.rule.pre, Bucketing):
            return self.rule
        drawn = random.Random(f"buckets:{seed}:{self.rule.pre.seed}:{number}").getrandbits(62)
        return replace(self.rule, pre=replace(self.rule.pre, seed=drawn))


def choose(name: str, parameters_json: str) -> Choice:
    """Return the rule of that name with the task's parameters; raise UnknownRule or BadRule."""
    return _choose(name, json.dumps(json.loads(parameters_json).get("rule", {}), sort_keys=True))


@lru_cache(maxsize=256)
def _choose(name: str, given_json: str) -> Choice:
    trust, pre, method, optimiser = _steps(name)
    method = method or "mean"
    steps = [step for step in (trust, pre, method, optimiser) if step]
    parameters = Parameters(steps, json.loads(given_json), path="parameters.rule", label=name)
    vouched = parameters.get(TrustRuleParameters)
    return Choice(
        name=name,
        rule=make_rule(method, pre, parameters),
        by_trust=bool(trust),
        optimiser=OPTIMISERS[optimiser](parameters.of(optimiser)) if optimiser else None,
        known=vouched.known if vouched else (),
    )


def _steps(name: str) -> list[str]:
    """Split the name into its steps, empty where one is left out."""
    tables: tuple[Mapping[str, object], ...] = ({TRUST: None}, PRES, methods(), OPTIMISERS)
    steps = {step: index for index, names in enumerate(tables) for step in names}
    result = [""] * len(tables)
    last = -1
    for part in name.split("+"):
        index = require_known(part, steps, "rule")
        if index <= last:
            raise BadRule(f"rule: {part} comes too late in {name[:80]!r}; {_ORDER}")
        result[index], last = part, index
    return result


_ORDER = (
    "the order is trust, then nnm or bucketing, then how updates are combined, then how the model moves, one of each"
)

"""The steps of rules by name, and how a rule is made of its parameters.

`coterie.parameters` declares what a step takes: the group of the section "rule" that names the step among its choices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

from coterie.parameters import (
    BadParameter,
    ParameterGroup,
    did_you_mean,
    groups_read,
    parameter,
    parameter_group,
    read_groups,
)
from coterie.plugins import Registry
from services.aggregation.domain.rules.clipping import CentredClipping
from services.aggregation.domain.rules.geometric import GeometricMedian
from services.aggregation.domain.rules.krum import Krum
from services.aggregation.domain.rules.means import Mean, MeanAroundMedian, Median, TrimmedMean, TrimmedShare
from services.aggregation.domain.rules.mixing import Bucketing, Neighbours
from services.aggregation.domain.rules.optimisers import Adaptive, Momentum, Optimiser
from services.aggregation.domain.rules.verdict import Coordinatewise, Linear
from services.aggregation.errors import BadRule, UnknownRule

T = TypeVar("T")
Method = Callable[[Any], Linear | Coordinatewise]
"""Makes the combination of updates from its group of parameters; from None where it takes none."""

METHODS: dict[str, Method] = {
    "mean": lambda _: Mean(),
    "median": lambda _: Median(),
    "trimmed-mean": lambda group: _trimmed_mean(group.f, group.share),
    "geometric-median": lambda _: GeometricMedian(),
    "krum": lambda group: Krum(group.f),
    "multi-krum": lambda group: Krum(group.f, several=True),
    "centred-clipping": lambda group: CentredClipping(group.radius, group.iterations),
    "mean-around-median": lambda group: MeanAroundMedian(group.f) if group.f else Mean(),
}
"""Built-in methods; see `methods`."""
PRES: dict[str, Callable[[Any], Neighbours | Bucketing]] = {
    "nnm": lambda group: Neighbours(group.f),
    "bucketing": lambda group: Bucketing(group.size, group.seed),
}
"""What may be done to the updates before they are combined."""
OPTIMISERS: dict[str, Callable[[Any], Optimiser]] = {
    "fedavgm": lambda group: Momentum(**group.to_dict()),
    "fedadam": lambda group: Adaptive("fedadam", **group.to_dict()),
    "fedyogi": lambda group: Adaptive("fedyogi", **group.to_dict()),
    "fedadagrad": lambda group: Adaptive("fedadagrad", **group.to_dict()),
}
"""How the model may take the step."""


def _require_method(item: object) -> Method:
    if not callable(item):
        raise TypeError(f"{item!r} is not a function from a group of parameters to a rule")
    return item


RULES: Registry[Method] = Registry("coterie.rules", {}, _require_method)
"""Methods of other packages."""


@cache
def methods() -> dict[str, Method]:
    """All methods: the built-in ones, and those of entry points of the group `coterie.rules`."""
    for name in RULES.names:
        if name in METHODS or name in (*PRES, *OPTIMISERS, "trust") or "+" in name:
            RULES.reject(name, f"{name!r} is the name of a built-in step or contains '+'; choose another")
    return METHODS | RULES.load_all()


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule ready to run: `f` devices may lie, `pre` is done to the updates first."""

    name: str
    method: Linear | Coordinatewise
    pre: Neighbours | Bucketing | None = None
    f: int = 0

    def why_not(self, devices: int) -> str:
        """Return why the rule cannot combine the updates of this many devices; empty where it can."""
        points = self.pre.buckets_of(devices) if isinstance(self.pre, Bucketing) else devices
        if 2 * self.f < points:
            return ""
        what = f"{points} buckets of {devices} devices" if points != devices else f"{devices} devices"
        return f"f = {self.f} needs more than {2 * self.f} updates, not {what}: honest updates must be the majority"

    def refuse(self, devices: int) -> None:
        """Raise BadRule where the rule cannot combine the updates of this many devices."""
        why = self.why_not(devices)
        if why:
            raise BadRule(f"parameters.f: {why}")


@parameter_group("rule", "centred-clipping")
class CentreParameters(ParameterGroup):
    """What a what-if may give besides the declared parameters; a task clips around the present model."""

    centre: tuple[float, ...] | None = parameter(default=None, min_length=1, help="Centre, one number per element.")


class Parameters:
    """The parameters of a rule's steps, read from the object that the steps share."""

    def __init__(
        self, steps: Collection[str], given: object, *, path: str, label: str, extra: type[ParameterGroup] | None = None
    ) -> None:
        kinds = [*groups_read("rule", steps), *([extra] if extra else [])]
        try:
            self._groups = read_groups(kinds, given, path, of=label)
        except BadParameter as error:
            raise BadRule(str(error)) from error

    def of(self, step: str) -> Any:
        """Return the group that the step reads; None where it takes no parameters."""
        return next((group for group in self._groups if step in group.choices), None)

    def get(self, kind: type[ParameterGroup]) -> Any:
        """Return the group of this class; None where no step reads it."""
        return next((group for group in self._groups if isinstance(group, kind)), None)

    @property
    def f(self) -> int:
        """Devices that may lie; 0 where no step tolerates any."""
        return max((getattr(group, "f", None) or 0 for group in self._groups), default=0)


def make_rule(method: str, pre: str, parameters: Parameters) -> Rule:
    """Return the rule of these steps; an empty `pre` combines the updates as they are."""
    return Rule(
        name=method,
        method=methods()[method](parameters.of(method)),
        pre=PRES[pre](parameters.of(pre)) if pre else None,
        f=parameters.f,
    )


def rule_for(name: str, given: Mapping[str, Any], pre: str | None = None) -> Rule:
    """Return the rule of a what-if; raise UnknownRule or BadRule for steps or parameters that it cannot have."""
    require_known(name, methods(), "rule")
    if pre is not None:
        require_known(pre, PRES, "pre")
    parameters = Parameters(
        [name, *([pre] if pre else [])],
        given,
        path="parameters",
        label=f"{name} with {pre}" if pre else name,
        extra=CentreParameters if name == "centred-clipping" else None,
    )
    rule = make_rule(name, pre or "", parameters)
    if isinstance(rule.method, CentredClipping):
        return replace(rule, method=replace(rule.method, centre=parameters.get(CentreParameters).centre))
    return rule


def optimiser_for(name: str, given: Mapping[str, Any]) -> Optimiser:
    """Return the server optimiser of a what-if; raise UnknownRule or BadRule for what it cannot have."""
    make = require_known(name, OPTIMISERS, "rule")
    return make(Parameters([name], given, path="parameters", label=name).of(name))


def require_known(name: str, table: Mapping[str, T], path: str) -> T:
    """Return the entry of that name; raise UnknownRule with the nearest name where there is none."""
    if name in table:
        return table[name]
    raise UnknownRule(
        f"{path}: no {path} {name[:50]!r}{did_you_mean(name, table)}; choose one of: {', '.join(table)}{RULES.advice}"
    )


def _trimmed_mean(f: int | None, share: float | None) -> Linear | Coordinatewise:
    if share:
        return TrimmedShare(share)
    return TrimmedMean(f) if f else Mean()

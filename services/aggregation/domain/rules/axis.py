"""Which rules there are, what each is told, and how many devices it needs: a task's `rule`, read and checked.

A rule is named; its parameters are a JSON object. Whatever is wrong is told with its place and, for a name nobody
knows, the nearest known one.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, TypeGuard, TypeVar

from coterie.plugins import Registry
from services.aggregation.domain.rules.clipping import CentredClipping
from services.aggregation.domain.rules.geometric import GeometricMedian
from services.aggregation.domain.rules.krum import Krum
from services.aggregation.domain.rules.means import Mean, MeanAroundMedian, Median, TrimmedMean, TrimmedShare
from services.aggregation.domain.rules.mixing import Bucketing, Neighbours
from services.aggregation.domain.rules.optimisers import Adaptive, Momentum, Optimiser
from services.aggregation.domain.rules.verdict import Coordinatewise, Linear
from services.aggregation.errors import BadRule, UnknownRule

MAX_ITERATIONS = 1000
MAX_TAU = 1e150
"""Its square, which v starts at, must be a number."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: what it means, its bounds, and its value when not given (None: it must be).

    `instead` names the parameter that may be given in its place.
    """

    meaning: str
    whole: bool
    low: float
    high: float = math.inf
    above: bool = False
    default: float | None = None
    instead: str = ""

    def read(self, place: str, value: object) -> float:
        """The value, if it is one."""
        if not _is_number(value) or not self._holds(value):
            raise BadRule(f"{place}: must be {self._bounds()}, not {value!r}"[:300])
        return int(value) if self.whole else float(value)

    def _holds(self, value: float) -> bool:
        if self.whole and value != int(value):
            return False
        return self.low <= value <= self.high and not (self.above and value == self.low)

    def _bounds(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        low = f"above {self.low:g}" if self.above else f"at least {self.low:g}"
        return f"{kind} {low}" + (f" and at most {self.high:g}" if self.high < math.inf else "")


F = Parameter("devices that may lie", whole=True, low=0)
_TRIMMING = {
    "f": Parameter("devices that may lie", whole=True, low=0, instead="share"),
    "share": Parameter("weight left out at each end", whole=False, low=0, high=0.49, instead="f"),
}
_CLIPPING = {
    "radius": Parameter("how far one update may pull at a time", whole=False, low=0, above=True),
    "iterations": Parameter("how often", whole=True, low=1, high=MAX_ITERATIONS, default=1),
}
_BUCKETS = {
    "size": Parameter("updates in a bucket", whole=True, low=1),
    "seed": Parameter("decides who meets whom", whole=True, low=0, high=2.0**63, default=0),
}
_MOMENTUM = {
    "learning_rate": Parameter("η, length of a step", whole=False, low=0, above=True, default=1.0),
    "momentum": Parameter("β, how much of the last step stays", whole=False, low=0, high=1, default=0.9),
}
_ADAPTIVE = {
    "learning_rate": Parameter("η, length of a step", whole=False, low=0, above=True, default=0.1),
    "beta1": Parameter("β₁, how much of the mean change stays", whole=False, low=0, high=1, default=0.9),
    "beta2": Parameter("β₂, how much of the mean square stays", whole=False, low=0, high=1, default=0.99),
    "tau": Parameter(
        "τ, bounds the step where changes are small", whole=False, low=0, high=MAX_TAU, above=True, default=1e-3
    ),
}

Told = Mapping[str, Any]


class Method(NamedTuple):
    """How updates are combined: the parameters it takes, and a function that makes it of their values."""

    parameters: Mapping[str, Parameter]
    make: Callable[[Told], Linear | Coordinatewise]


METHODS: dict[str, Method] = {
    "mean": Method({}, lambda told: Mean()),
    "median": Method({}, lambda told: Median()),
    "trimmed-mean": Method(_TRIMMING, lambda told: _trimmed(told)),
    "geometric-median": Method({}, lambda told: GeometricMedian()),
    "krum": Method({"f": F}, lambda told: Krum(told["f"])),
    "multi-krum": Method({"f": F}, lambda told: Krum(told["f"], several=True)),
    "centred-clipping": Method(
        _CLIPPING, lambda told: CentredClipping(told["radius"], told["iterations"], told["centre"])
    ),
    "mean-around-median": Method({"f": F}, lambda told: MeanAroundMedian(told["f"]) if told["f"] else Mean()),
}
"""Built-in methods; see `methods`."""


def _require_method(item: object) -> Method:
    if not (isinstance(item, Method) and callable(item.make)):
        raise TypeError(f"{item!r} is not a services.aggregation.domain.rules.axis.Method")
    return item


@cache
def methods() -> dict[str, Method]:
    """All methods: the built-in ones, and those of entry points of the group `coterie.rules`."""
    for name in RULES.names:
        if name in METHODS or name in (*PRES, *OPTIMISERS, "trust") or "+" in name:
            RULES.reject(name, f"{name!r} is the name of a built-in step or contains '+'; choose another")
    return METHODS | RULES.load_all()


RULES: Registry[Method] = Registry("coterie.rules", {}, _require_method)
PRES: dict[str, tuple[Mapping[str, Parameter], Callable[[Told], Neighbours | Bucketing]]] = {
    "nnm": ({"f": F}, lambda told: Neighbours(told["f"])),
    "bucketing": (_BUCKETS, lambda told: Bucketing(told["size"], told["seed"])),
}
OPTIMISERS: dict[str, tuple[Mapping[str, Parameter], Callable[[Told], Optimiser]]] = {
    "fedavgm": (_MOMENTUM, lambda told: Momentum(**told)),
    "fedadam": (_ADAPTIVE, lambda told: Adaptive("fedadam", **told)),
    "fedyogi": (_ADAPTIVE, lambda told: Adaptive("fedyogi", **told)),
    "fedadagrad": (_ADAPTIVE, lambda told: Adaptive("fedadagrad", **told)),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule ready to run: `f` devices may lie, `pre` is done to the updates first."""

    name: str
    method: Linear | Coordinatewise
    pre: Neighbours | Bucketing | None = None
    f: int = 0

    def why_not(self, devices: int) -> str:
        """Why so many devices cannot bear this rule; empty when they can."""
        points = self.pre.buckets_of(devices) if isinstance(self.pre, Bucketing) else devices
        if 2 * self.f < points:
            return ""
        what = f"{points} buckets of {devices} devices" if points != devices else f"{devices} devices"
        return (
            f"f = {self.f} needs more than {2 * self.f} updates, not {what}: more honest ones than others must be left"
        )

    def refuse(self, devices: int) -> None:
        """Raises when so many devices cannot bear this rule."""
        why = self.why_not(devices)
        if why:
            raise BadRule(f"parameters.f: {why}")


def rule_for(name: str, parameters: Told, pre: str | None = None) -> Rule:
    """The rule of that name, if its parameters make sense."""
    wanted, make = known(name, methods(), "rule")
    before, prepare = known(pre, PRES, "pre") if pre is not None else ({}, None)
    label = f"{name} with {pre}" if pre else name
    told = read(together(wanted, before), parameters, label, optional=("centre",) if name == "centred-clipping" else ())
    if name == "centred-clipping":
        told["centre"] = _centre(parameters.get("centre"))
    return Rule(name, make(told), prepare(told) if prepare else None, int(told.get("f", 0)))


def optimiser_for(name: str, parameters: Told) -> Optimiser:
    """The server optimiser of that name, if its parameters make sense."""
    wanted, make = known(name, OPTIMISERS, "rule")
    return make(read(wanted, parameters, name))


def known(name: str, table: Mapping[str, T], place: str) -> T:
    """The entry of that name; refuses others with the nearest known one."""
    if name in table:
        return table[name]
    names = ", ".join(table)
    raise UnknownRule(f"{place}: no {place} {name[:50]!r}{nearest(name, table)}; choose one of: {names}{RULES.advice}")


def together(*tables: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Parameters of several steps. What one step needs can no more be given in another's place."""
    merged: dict[str, Parameter] = {}
    for table in tables:
        merged |= {name: item for name, item in table.items() if name not in merged or not item.instead}
    return {
        name: replace(parameter, instead="", default=0.0)
        if parameter.instead in merged and not merged[parameter.instead].instead
        else parameter
        for name, parameter in merged.items()
    }


def read(
    wanted: Mapping[str, Parameter],
    given: Told,
    rule: str,
    optional: tuple[str, ...] = (),
    place: str = "parameters",
) -> dict[str, Any]:
    """Values of all wanted parameters; refuses missing, unknown and senseless ones."""
    for name in given:
        if name not in wanted and name not in optional:
            takes = ", ".join([*wanted, *optional]) or "none"
            raise BadRule(
                f"{place}.{name[:50]}: {rule} has no such parameter{nearest(name, wanted)}; it takes: {takes}"
            )
    told: dict[str, Any] = {}
    for name, parameter in wanted.items():
        if parameter.instead in given:
            if name in given:
                raise BadRule(f"{place}.{name}: give {parameter.instead} or {name}, not both")
            continue
        value = given.get(name, parameter.default)
        if value is None:
            raise BadRule(f"{place}.{name}: is missing; {rule} needs it: {parameter.meaning}")
        told[name] = parameter.read(f"{place}.{name}", value)
    return told


def nearest(name: str, among: Mapping[str, object]) -> str:
    """ ", did you mean …?" when a known name is near, else nothing."""
    near = difflib.get_close_matches(name, list(among), 1)
    return f", did you mean {near[0]!r}?" if near else ""


def _trimmed(told: Told) -> Linear | Coordinatewise:
    if told.get("share"):
        return TrimmedShare(told["share"])
    return TrimmedMean(told["f"]) if told.get("f") else Mean()


def _is_number(value: object) -> TypeGuard[float]:
    """Whether it is a number that fits a float; JSON also knows whole numbers that do not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 <= value <= 1e300


def _centre(value: object) -> tuple[float, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not value:
        raise BadRule(f"parameters.centre: must be a list of numbers, one per element, not {value!r}"[:200])
    for place, number in enumerate(value):
        if not _is_number(number):
            raise BadRule(f"parameters.centre.{place}: must be a finite number, not {number!r}"[:200])
    return tuple(float(number) for number in value)

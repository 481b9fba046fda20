"""Every declared group of parameters by section and choice, and the validator of a task's `parameters`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from coterie.parameters.declaration import Parameter, ParameterGroup, read_values
from coterie.parameters.errors import BadParameter
from coterie.parameters.forms import group_schema
from coterie.parameters.pricing import (
    ContributionParameters,
    CorrelatedParameters,
    PayoffParameters,
    StackelbergParameters,
)
from coterie.parameters.privacy import OptimisedPrivacy, PartialPrivacy, TrustPrivacy, UniformPrivacy
from coterie.parameters.rules import (
    AdaptiveParameters,
    BucketingParameters,
    ClippingParameters,
    FaultParameters,
    MomentumParameters,
    TrimmingParameters,
    TrustRuleParameters,
)
from coterie.parameters.task import AsynchronousParameters, BoundsParameters, SumsParameters, SurveyParameters
from coterie.parameters.topology import CellsParameters, ClusterParameters, MeshParameters
from coterie.plugins import Registry


def _require_group(item: object) -> type[ParameterGroup]:
    if not (isinstance(item, type) and issubclass(item, ParameterGroup)):
        raise TypeError(f"{item!r} is not a subclass of coterie.parameters.ParameterGroup")
    return item


EXTENSIONS = Registry("coterie.parameters", {}, _require_group)
"""Entry points of other packages that each name a `ParameterGroup`."""
OWN: tuple[type[ParameterGroup], ...] = (
    ClusterParameters,
    MeshParameters,
    CellsParameters,
    UniformPrivacy,
    TrustPrivacy,
    PartialPrivacy,
    OptimisedPrivacy,
    PayoffParameters,
    ContributionParameters,
    StackelbergParameters,
    CorrelatedParameters,
    TrustRuleParameters,
    FaultParameters,
    TrimmingParameters,
    ClippingParameters,
    BucketingParameters,
    MomentumParameters,
    AdaptiveParameters,
    SurveyParameters,
    SumsParameters,
    BoundsParameters,
    AsynchronousParameters,
)
AXIS = {
    "topology": "topology",
    "privacy": "privacy",
    "pricing": "incentive",
    "rule": "rule",
    "survey": "incentive",
    "asynchronous": "mode",
}
"""Field of a task whose value chooses the group of a section; the other sections have one group for every task."""


@cache
def groups() -> tuple[type[ParameterGroup], ...]:
    """All groups: this package's and those of installed extensions."""
    return (*OWN, *EXTENSIONS.load_all().values())


def sections() -> dict[str, list[type[ParameterGroup]]]:
    """The groups of each section."""
    result: dict[str, list[type[ParameterGroup]]] = {}
    for group in groups():
        result.setdefault(group.section, []).append(group)
    return result


def groups_read(section: str, choices: Iterable[str]) -> list[type[ParameterGroup]]:
    """The groups of a section that a task with these choices reads."""
    wanted = set(choices)
    return [group for group in sections()[section] if not group.choices or wanted & set(group.choices)]


def check_keys(parameters: Mapping[str, Any], task: Mapping[str, str]) -> None:
    """Refuse a section or key that a task with these axes does not read; `task` has each axis's choice.

    The choice of `rule` is its steps, joined by "+".
    """
    known = sections()
    for section, given in parameters.items():
        path = f"parameters.{section[:50]}"
        if section not in known:
            raise BadParameter.unknown(path, section, known, "parameters")
        if not isinstance(given, Mapping):
            raise BadParameter(path, f"must be a JSON object, not {repr(given)[:60]}")
        choice = task.get(AXIS.get(section, ""), "")
        declared = merged(groups_read(section, choice.split("+")))
        for name in given:
            if name not in declared:
                axis = f"{AXIS[section]} {choice}" if section in AXIS else section
                raise BadParameter.unknown(f"{path}.{str(name)[:50]}", name, declared, axis)


def merged(kinds: Iterable[type[ParameterGroup]]) -> dict[str, Parameter]:
    """The parameters of several groups that share an object; one that any of them requires is required."""
    result: dict[str, Parameter] = {}
    for kind in kinds:
        for name, item in kind.parameters().items():
            if name not in result or not result[name].is_required:
                result[name] = item
    return result


def read_groups(
    kinds: Collection[type[ParameterGroup]], given: object, path: str, *, of: str = ""
) -> list[ParameterGroup]:
    """Read several groups from the object that they share; `of` names what takes them.

    A group whose parameter another group requires is not asked for its own `requirements`.
    """
    declared = merged(kinds)
    values = read_values(declared, {} if given is None else given, path, of=of)
    result = []
    for kind in kinds:
        group = kind(**{name: values[name] for name in kind.parameters()})
        if all(declared[name] is item for name, item in kind.parameters().items()):
            group.require_consistency(path)
        result.append(group)
    return result


@dataclass(frozen=True, slots=True)
class Place:
    """Where a parameter stands and which choices read it."""

    group: type[ParameterGroup]
    parameter: Parameter

    @property
    def path(self) -> str:
        """Its path in a task."""
        return f"parameters.{self.group.section}.{self.parameter.name}"

    @property
    def read_by(self) -> str:
        """Which tasks read it: "topology mesh"; "every task"."""
        if not self.group.choices:
            return "every task"
        return f"{AXIS.get(self.group.section, self.group.section)} {', '.join(self.group.choices)}"


def places() -> list[Place]:
    """Every parameter of every group."""
    return [Place(group, item) for group in groups() for item in group.parameters().values()]


def schema() -> dict[str, Any]:
    """JSON schema of a task's `parameters`."""
    properties: dict[str, Any] = {}
    for section, kinds in sections().items():
        described = [
            {"title": ", ".join(kind.choices) or section, "description": (kind.__doc__ or "").strip()}
            | group_schema(kind)
            for kind in kinds
        ]
        together = {"type": "object", "properties": {name: p.schema for name, p in merged(kinds).items()}}
        properties[section] = (
            together if section == "rule" else described[0] if len(described) == 1 else {"anyOf": described}
        )
    return {
        "type": "object",
        "description": "Parameters of the axes, one section each, at most 64 KiB as JSON.",
        "additionalProperties": False,
        "properties": properties,
    }

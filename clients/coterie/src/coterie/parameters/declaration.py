"""How a task parameter is declared: a typed field with default, bounds, unit and help, in a group of parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from types import NoneType
from typing import Any, ClassVar, Literal, Self, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from coterie.parameters.errors import BadParameter
from coterie.parameters.forms import Form, Limits, describe, json_schema, matches

_KEY = "parameter"
REQUIRED: Any = MISSING
"""Default of a parameter that a task must give."""
C = TypeVar("C", bound=type["ParameterGroup"])


@dataclass(frozen=True, slots=True)
class _Declared:
    limits: Limits
    title: str
    help: str
    unit: str
    nullable: bool


def parameter(
    *,
    default: Any = REQUIRED,
    help: str,
    title: str = "",
    unit: str = "",
    nullable: bool = False,
    **limits: Any,
) -> Any:
    """Declare a field of a group.

    Parameters
    ----------
    default : its value when a task leaves it out; without one the parameter is required, with None it may be absent.
    nullable : whether null is a value; otherwise null means that the parameter is not given.
    limits : `at_least`, `above`, `at_most`, `below`, `max_length`, `min_length`, `pattern`, see `Limits`.
    """
    return field(default=default, metadata={_KEY: _Declared(Limits(**limits), title, help, unit, nullable)})


@dataclass(frozen=True, slots=True)
class Parameter:
    """A declared parameter as forms, references and help texts show it.

    Attributes:
        form: its Python type.
        default: its value when left out; `REQUIRED` if it must be given, None if it may be absent.
    """

    name: str
    form: Form
    default: Any
    limits: Limits
    title: str
    help: str
    unit: str
    nullable: bool

    @property
    def is_required(self) -> bool:
        """Whether a task must give it."""
        return self.default is REQUIRED

    @property
    def options(self) -> tuple[str, ...]:
        """The words it may be; none where other values are allowed."""
        origin: Any = get_origin(self.form)
        return get_args(self.form) if origin is Literal else ()

    @property
    def allowed(self) -> str:
        """The allowed values in words: "a number above 0 and at most 1"."""
        return describe(self.form, self.limits)

    @property
    def default_text(self) -> str:
        """Its default as JSON; "required" or "none" where it has no default."""
        if self.is_required:
            return "required"
        return "none" if self.default is None else json.dumps(_plain(self.default), ensure_ascii=False)

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of its value."""
        texts = {"title": self.title, "description": f"{self.help} Unit: {self.unit}." if self.unit else self.help}
        schema = json_schema(self.form, self.limits) | {key: text for key, text in texts.items() if text}
        return schema if self.default in (None, REQUIRED) else schema | {"default": _plain(self.default)}

    def read(self, path: str, value: object) -> Any:
        """Return the value in its declared form, or raise `BadParameter`."""
        try:
            return matches(self.form, self.limits, value, path)
        except TypeError:
            remedy = (
                "" if self.is_required or self.default is None else f", or leave it out for {_plain(self.default)!r}"
            )
            message = f"must be {self.allowed}, not {repr(value)[:60]}; change it{remedy}"
            raise BadParameter(path, message) from None


class ParameterGroup:
    """Base of the parameters that one choice of a task reads; subclasses are declared with `@parameter_group`."""

    __slots__ = ()
    section: ClassVar[str]
    """Key under which a task's `parameters` hold the group."""
    choices: ClassVar[tuple[str, ...]]
    """Topologies, privacies, incentives, … that read the group; none means that every task may give it."""

    def requirements(self) -> None:
        """Raise ValueError where the values contradict each other; the text starts with what is wrong."""

    @classmethod
    def parameters(cls) -> Mapping[str, Parameter]:
        """The declared parameters by name."""
        kind: Any = cls
        declared: Mapping[str, Parameter] = _parameters(kind)
        return declared

    @classmethod
    def label(cls) -> str:
        """The section and the choices that read it: "privacy uniform"."""
        return " ".join([cls.section, *([", ".join(cls.choices)] if cls.choices else [])])

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Read the group from a task's stored parameters; keys of other groups are ignored."""
        return cls.read(parameters.get(cls.section), strict=False)

    @classmethod
    def validate(cls, parameters: Mapping[str, Any]) -> Self:
        """Read the group from the parameters of a new task; refuse unknown keys and contradictions."""
        return cls.read(parameters.get(cls.section))

    @classmethod
    def read(cls, given: object, *, strict: bool = True, path: str = "") -> Self:
        """Read the group from its own object; `strict` refuses unknown keys and contradictions."""
        path = path or f"parameters.{cls.section}"
        group = cls(
            **read_values(cls.parameters(), {} if given is None else given, path, strict=strict, of=cls.label())
        )
        if strict:
            group.require_consistency(path)
        return group

    def require_consistency(self, path: str) -> None:
        """Raise BadParameter where the values contradict each other."""
        try:
            self.requirements()
        except BadParameter:
            raise
        except ValueError as error:
            raise BadParameter(path, str(error)) from error

    def to_dict(self) -> dict[str, Any]:
        """The values as JSON, without those that are absent."""
        values = ((name, getattr(self, name), item) for name, item in self.parameters().items())
        return {name: _plain(value) for name, value, item in values if value is not None or item.nullable}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(parameter,))
def parameter_group(section: str, *choices: str) -> Callable[[C], C]:
    """Make a class the parameters of one section that these choices read; its fields are made with `parameter`."""

    def declare(kind: C) -> C:
        made: Any = dataclass(frozen=True, slots=True, kw_only=True)(kind)
        made.section, made.choices = section, choices
        return made  # type: ignore[no-any-return]

    return declare


def read_values(
    declared: Mapping[str, Parameter], given: object, path: str, *, strict: bool = True, of: str = ""
) -> dict[str, Any]:
    """The given values in their declared forms, defaults filled in; `of` names what takes them."""
    if not isinstance(given, Mapping):
        raise BadParameter(path, f"must be a JSON object, not {repr(given)[:60]}")
    if strict:
        for name in given:
            if name not in declared:
                raise BadParameter.unknown(f"{path}.{str(name)[:50]}", name, declared, of)
    values: dict[str, Any] = {}
    for name, item in declared.items():
        value = given.get(name)
        if value is not None or (item.nullable and name in given):
            values[name] = item.read(f"{path}.{name}", value)
        elif item.is_required:
            raise BadParameter(f"{path}.{name}", f"is missing; give {item.allowed}: {item.help}")
        else:
            values[name] = item.default
    return values


@cache
def _parameters(kind: Any) -> Mapping[str, Parameter]:
    hints = get_type_hints(kind)
    made = {}
    for item in fields(kind):
        declared: _Declared = item.metadata[_KEY]
        form = hints[item.name]
        if not declared.nullable and NoneType in get_args(form):
            form = _without_none(form)
        made[item.name] = Parameter(
            name=item.name,
            form=form,
            default=item.default,
            limits=declared.limits,
            title=declared.title or item.name.replace("_", " ").capitalize(),
            help=declared.help,
            unit=declared.unit,
            nullable=declared.nullable,
        )
    return made


def _without_none(form: Any) -> Any:
    rest = [item for item in get_args(form) if item is not NoneType]
    made = rest[0]
    for item in rest[1:]:
        made = made | item
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, ParameterGroup):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

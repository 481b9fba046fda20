"""Types of parameters: whether a JSON value is of one, its JSON schema, and what to call it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from types import EllipsisType, NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

from coterie.protocol.sanitise import ONE_LINE

Form: TypeAlias = Any
"""bool, int, float, str, Literal of words, tuple, a group, or a union of these."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a number, and of the length of a text or a list."""

    at_least: float = -math.inf
    above: float = -math.inf
    at_most: float = math.inf
    below: float = math.inf
    min_length: int = 0
    max_length: int = 0
    """0 = any length."""
    pattern: str = ""
    """What a whole text must match; by default it is one line without control characters."""

    def allow(self, number: float) -> bool:
        """Whether a number is within bounds."""
        return self.at_least <= number <= self.at_most and self.above < number < self.below

    def allow_length(self, length: int) -> bool:
        """Whether a text or list may have this length."""
        return length >= self.min_length and (not self.max_length or length <= self.max_length)


ANY = Limits()


def matches(form: Form, limits: Limits, value: object, path: str) -> Any:
    """Return the value in this form; raise TypeError where it is of another."""
    origin: Any = get_origin(form)
    if origin in (Union, UnionType):
        return _any_of(form, limits, value, path)
    if origin is Literal:
        return _require(value, isinstance(value, str) and value in get_args(form))
    if origin is tuple:
        return _items(form, limits, value, path)
    if form is NoneType:
        return _require(value, value is None)
    if form is bool:
        return _require(value, isinstance(value, bool))
    if form is str:
        fits = isinstance(value, str) and limits.allow_length(len(value))
        return _require(value, fits and re.fullmatch(limits.pattern or ONE_LINE, str(value)) is not None)
    if form in (int, float):
        return _number(form, limits, value)
    return form.read(value, path=path)


def _any_of(form: Form, limits: Limits, value: object, path: str) -> Any:
    for item in get_args(form):
        try:
            return matches(item, limits, value, path)
        except TypeError:
            continue
    raise TypeError


def _items(form: Form, limits: Limits, value: object, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError
    item, *others = get_args(form)
    many = not others or isinstance(others[-1], EllipsisType)
    _require(value, limits.allow_length(len(value)) if many else len(value) == 1 + len(others))
    return tuple(matches(item, ANY, entry, f"{path}.{index}") for index, entry in enumerate(value))


def _number(form: Form, limits: Limits, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    # JSON knows whole numbers that no float holds.
    if not -1e308 <= value <= 1e308 or not limits.allow(value) or (form is int and value != int(value)):
        raise TypeError
    return int(value) if form is int else float(value)


def _require(value: Any, fits: bool) -> Any:
    if not fits:
        raise TypeError
    return value


def describe(form: Form, limits: Limits) -> str:
    """The allowed values in words."""
    origin: Any = get_origin(form)
    args = get_args(form)
    if origin in (Union, UnionType):
        return " or ".join(describe(item, limits) for item in args)
    if origin is Literal:
        return f"one of {', '.join(args)}" if len(args) > 1 else f'"{args[0]}"'
    if origin is tuple:
        several = _several(args[0])
        if len(args) > 1 and not isinstance(args[-1], EllipsisType):
            return f"a list of {len(args)} {several}"
        least = f" of at least {limits.min_length}" if limits.min_length else ""
        return f"a list{least or ' of'} {several}" + (f", {limits.max_length} at most" if limits.max_length else "")
    if form is str:
        return (
            "text"
            + (f" of at most {limits.max_length} characters" if limits.max_length else "")
            + (f" like {limits.pattern}" if limits.pattern else "")
        )
    if form in (int, float):
        return "a whole number" + _bounds(limits) if form is int else "a number" + _bounds(limits)
    return {bool: "true or false", NoneType: "null"}.get(form, "a JSON object")


def _several(form: Form) -> str:
    origin: Any = get_origin(form)
    if origin is Literal:
        return f"words among {', '.join(get_args(form))}"
    return {str: "texts", float: "numbers", int: "whole numbers"}.get(form, "JSON objects")


def _bounds(limits: Limits) -> str:
    bounds = {
        "above": limits.above,
        "at least": limits.at_least,
        "below": limits.below,
        "at most": limits.at_most,
    }
    texts = [f"{word} {_digits(bound)}" for word, bound in bounds.items() if math.isfinite(bound)]
    return f" {' and '.join(texts)}" if texts else ""


def _digits(number: float) -> str:
    """The number with as many digits as it has."""
    short = f"{number:g}"
    return short if float(short) == number else f"{number:.17g}"


def json_schema(form: Form, limits: Limits) -> dict[str, Any]:
    """JSON schema of the allowed values."""
    origin: Any = get_origin(form)
    args = get_args(form)
    if origin in (Union, UnionType):
        return {"anyOf": [json_schema(item, limits) for item in args]}
    if origin is Literal:
        return {"type": "string", "enum": list(args)}
    if origin is tuple:
        many = len(args) == 1 or isinstance(args[-1], EllipsisType)
        least, most = (limits.min_length, limits.max_length) if many else (len(args), len(args))
        schema = {"type": "array", "items": json_schema(args[0], ANY), "minItems": least}
        return schema | ({"maxItems": most} if most else {})
    if form is str:
        text = {
            "minLength": limits.min_length,
            "maxLength": limits.max_length,
            "pattern": _anchored(limits.pattern) or ONE_LINE,
        }
        return {"type": "string"} | {key: value for key, value in text.items() if value}
    if form in (int, float):
        bounds = {
            "minimum": limits.at_least,
            "exclusiveMinimum": limits.above,
            "maximum": limits.at_most,
            "exclusiveMaximum": limits.below,
        }
        kind = "integer" if form is int else "number"
        return {"type": kind} | {key: value for key, value in bounds.items() if math.isfinite(value)}
    if form in (bool, NoneType):
        return {"type": "boolean" if form is bool else "null"}
    return group_schema(form)


def group_schema(kind: Any) -> dict[str, Any]:
    """JSON schema of a group: an object with its parameters and no others."""
    declared = kind.parameters()
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: item.schema for name, item in declared.items()},
    }
    required = [name for name, item in declared.items() if item.is_required]
    return schema | ({"required": required} if required else {})


def _anchored(pattern: str) -> str:
    return f"^(?:{pattern})$" if pattern else ""

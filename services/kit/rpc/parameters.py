"""A task's parameters in services: groups in code, `google.protobuf.Struct` between services, JSON text in tables.

`coterie.parameters` declares the parameters and their valid values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

from google.protobuf.struct_pb2 import ListValue, Struct, Value

from coterie.parameters import BadParameter, ParameterGroup
from services.kit.errors import InvalidInput

G = TypeVar("G", bound=ParameterGroup)
EXACT = 2**53
"""Integers up to this are exact on the wire."""


class BadParameters(InvalidInput):
    """An unknown parameter, or an invalid value."""


@contextmanager
def refusing() -> Iterator[None]:
    """Turn a `BadParameter` of the declarations into this platform's error."""
    try:
        yield
    except BadParameter as error:
        raise BadParameters(str(error), details={"field": error.path}) from error


def validate(kind: type[G], parameters: Mapping[str, Any]) -> G:
    """Read a group from the parameters of a new task; refuse unknown keys and contradictions."""
    with refusing():
        return kind.validate(parameters)


def read(kind: type[G], parameters: Mapping[str, Any]) -> G:
    """Read a group from a task's stored parameters."""
    with refusing():
        return kind.of(parameters)


def with_defaults(parameters: Mapping[str, Any], *kinds: type[ParameterGroup]) -> dict[str, Any]:
    """Validate these groups of the parameters and fill in their defaults."""
    return {**parameters, **{kind.section: validate(kind, parameters).to_dict() for kind in kinds}}


def canonical_text(parameters: Mapping[str, Any]) -> str:
    """Return parameters as JSON text; equal parameters give equal text."""
    try:
        return json.dumps(_canonical(parameters), sort_keys=True, allow_nan=False)
    except ValueError as error:
        raise BadParameters("parameters: a number is not finite; leave it out or give another") from error


def to_struct(parameters: Mapping[str, Any]) -> Struct:
    """Convert parameters to a message."""
    struct = Struct()
    fill_struct(struct, parameters, "parameters")
    return struct


def struct_of(text: str) -> Struct:
    """Convert JSON text of parameters to a message, which the caller may change."""
    return Struct.FromString(_bytes_of(text))


def from_struct(struct: Struct) -> dict[str, Any]:
    """Convert a message to parameters."""
    return {key: _from_value(value) for key, value in struct.fields.items()}


def fill_struct(struct: Struct, given: object, path: str) -> None:
    """Copy a JSON object into a message."""
    if not isinstance(given, Mapping):
        raise BadParameters(f"{path}: must be a JSON object, not {repr(given)[:60]}", details={"field": path})
    struct.SetInParent()
    for key, value in given.items():
        _fill_value(struct.fields[key], value, f"{path}.{str(key)[:50]}")


@lru_cache(maxsize=1024)
def _bytes_of(text: str) -> bytes:
    return to_struct(json.loads(text or "{}")).SerializeToString(deterministic=True)


def _fill_value(target: Value, value: object, path: str) -> None:
    if value is None:
        target.null_value = 0  # type: ignore[assignment]  # the only number of its enum
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int | float):
        if not -1e308 <= value <= 1e308:
            raise BadParameters(f"{path}: must be a finite number, not {repr(value)[:60]}", details={"field": path})
        target.number_value = value
    elif isinstance(value, str):
        target.string_value = value
    elif isinstance(value, Mapping):
        fill_struct(target.struct_value, value, path)
    elif isinstance(value, list | tuple):
        items: ListValue = target.list_value
        items.SetInParent()
        for index, item in enumerate(value):
            _fill_value(items.values.add(), item, f"{path}.{index}")
    else:
        raise BadParameters(f"{path}: must be JSON, not {repr(value)[:60]}", details={"field": path})


def _from_value(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        return _canonical(value.number_value)
    if kind == "struct_value":
        return from_struct(value.struct_value)
    if kind == "list_value":
        return [_from_value(item) for item in value.list_value.values]
    return None if kind in (None, "null_value") else getattr(value, kind)


def _canonical(value: Any) -> Any:
    """Convert every whole float to an integer, as values from the wire are."""
    if isinstance(value, Mapping):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and math.isfinite(value) and value.is_integer() and abs(value) <= EXACT:
        return int(value)
    return value

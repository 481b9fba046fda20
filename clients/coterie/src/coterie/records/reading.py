"""Convert JSON to records and back, by the records' type hints.

There is one reader per type, built on first use. It ignores unknown fields, which a newer platform may send. A missing
field takes the record's default; without one, or when a value has another type, `BadAnswer` names the field.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from coterie.errors import BadAnswer

T = TypeVar("T")
Reader = Callable[[Any], Any]
NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""Numbers JSON lacks, as the platform writes them."""


def read(kind: type[T], given: Any) -> T:
    """A record (or a list of them: `tuple[Task, ...]`) from an answer's JSON."""
    hint: Any = kind
    try:
        value: T = _reader(hint)(given)
    except Misfit as misfit:
        name = getattr(get_origin(hint) or hint, "__name__", str(hint))
        raise BadAnswer(f"the platform's answer cannot be read: {name}{misfit}") from None
    return value


def plain(value: Any) -> Any:
    """The JSON document a record was, or could have been, read from."""
    if is_dataclass(value):
        kind: Any = type(value)
        return {name: plain(getattr(value, name)) for name in _names(kind)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


class Misfit(Exception):
    """A value that does not fit its hint; grows its place on the way up."""

    def __init__(self, what: str, place: str = "") -> None:
        super().__init__(what, place)
        self.what, self.place = what, place

    def within(self, place: str) -> Misfit:
        """The same, seen from one step further out."""
        return Misfit(self.what, place + self.place)

    def __str__(self) -> str:
        return f"{self.place} {self.what}"


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@cache
def _reader(hint: Any) -> Reader:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _reader(arguments[0])
    if hint in _SCALARS:
        return _SCALARS[hint]
    if is_dataclass(origin or hint):
        return _record(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return lambda value: hint(_text(value))
    if origin is Literal:
        return _text
    if origin is tuple and arguments[1:] == (...,):
        return _sequence(_reader(arguments[0]))
    if origin is Mapping:
        return _mapping(_reader(arguments[1]))
    if origin in (Union, UnionType) and len(arguments) == 2 and arguments[1] is NoneType:
        return _optional(_reader(arguments[0]))
    raise TypeError(f"records cannot hold {hint}")


def _record(hint: Any) -> Reader:
    kind = get_origin(hint) or hint
    hints = get_type_hints(kind, include_extras=True)
    bound = dict(zip(getattr(kind, "__parameters__", ()), get_args(hint), strict=False))
    spots = [(f.name, _reader(_bound(hints[f.name], bound)), _has_default(f)) for f in fields(kind)]

    def record(given: Any) -> Any:
        if not isinstance(given, Mapping):
            raise _wrong("an object", given)
        values: dict[str, Any] = {}
        for name, reader, optional in spots:
            if name in given:
                try:
                    values[name] = reader(given[name])
                except Misfit as misfit:
                    raise misfit.within(f".{name}") from None
            elif not optional:
                raise Misfit("is missing; the platform may be older than this SDK", f".{name}")
        return kind(**values)

    return record


def _has_default(field: Any) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _bound(hint: Any, bound: Mapping[Any, Any]) -> Any:
    """The hint with its type variables replaced."""
    wanted = tuple(bound[variable] for variable in getattr(hint, "__parameters__", ()))
    return hint[wanted] if wanted else hint


def _sequence(reader: Reader) -> Reader:
    def sequence(given: Any) -> tuple[Any, ...]:
        if not isinstance(given, list):
            raise _wrong("a list", given)
        values: list[Any] = []
        for value in given:
            try:
                values.append(reader(value))
            except Misfit as misfit:
                raise misfit.within(f"[{len(values)}]") from None
        return tuple(values)

    return sequence


def _mapping(reader: Reader) -> Reader:
    def mapping(given: Any) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise _wrong("an object", given)
        values: dict[str, Any] = {}
        for key, value in given.items():
            try:
                values[key] = reader(value)
            except Misfit as misfit:
                raise misfit.within(f"[{key!r}]") from None
        return values

    return mapping


def _optional(reader: Reader) -> Reader:
    return lambda value: None if value is None else reader(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise _wrong("text", value)


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong("true or false", value)


def _whole(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _wrong("a whole number", value)


def _number(value: Any) -> float:
    if isinstance(value, str) and value in NOT_FINITE:
        return NOT_FINITE[value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise _wrong("a number", value)


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except (binascii.Error, ValueError):
        raise _wrong("base64", value) from None


def _same(value: Any) -> Any:
    return value


def _wrong(wanted: str, value: Any) -> Misfit:
    shown = repr(value)
    return Misfit(f"should be {wanted}, not {shown if len(shown) <= 60 else shown[:60] + '…'}")


_SCALARS: dict[Any, Reader] = {str: _text, bool: _flag, int: _whole, float: _number, bytes: _bytes, Any: _same}

"""Answers for tests: records that are empty but for what a test says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from coterie.records import Record
from coterie.records.reading import plain, read

R = TypeVar("R", bound=Record)
_EMPTY: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False, bytes: ""}


def made(kind: type[R], /, **given: Any) -> R:
    """A record of this kind; fields left out are empty, and values may be records or JSON."""
    return read(kind, _empty(kind) | plain(given))


def _empty(hint: Any) -> Any:
    origin = get_origin(hint)
    if is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        return {field.name: _empty(hints[field.name]) for field in fields(hint)}
    if origin is Annotated:
        return _empty(get_args(hint)[0])
    if origin is Literal:
        return get_args(hint)[0]
    if origin is tuple:
        return []
    if origin is Mapping:
        return {}
    if hint in _EMPTY:
        return _EMPTY[hint]
    return "" if isinstance(hint, type) else None  # a word, or something optional

"""Canonical JSON: every document has one spelling, so that the hashed or signed text is the text that was read.

Sorted keys, no spaces; integers, and strings of printable ASCII without `"` and `\\`. A reader refuses a text that
differs from its own encoding of what it read: repeated keys, spaces, 1.0 or true for 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

MOST_CHARACTERS = 8 * 1024 * 1024
_SAFE = frozenset(map(chr, range(0x20, 0x7F))) - {'"', "\\"}


class NotCanonical(Exception):
    """A document that is not in canonical form, or not of the shape it should have."""


def encode(document: Any) -> str:
    """Return the canonical text of a document; `NotCanonical` if it has none."""
    _check(document)
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def decode(text: str) -> Any:
    """Parse a document; `NotCanonical` unless the text is its canonical form."""
    if len(text) > MOST_CHARACTERS:
        raise NotCanonical(f"a document has at most {MOST_CHARACTERS} characters, this one {len(text)}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotCanonical("the document is not JSON") from error
    if encode(document) != text:
        raise NotCanonical("the document is not in canonical form")
    return document


def fields(document: Any, kinds: Mapping[str, type], what: str) -> dict[str, Any]:
    """Return the document as an object with exactly these keys, each of exactly this type."""
    if type(document) is not dict or document.keys() != kinds.keys():
        raise NotCanonical(f"{what} must be an object with the keys {', '.join(sorted(kinds))} and no others")
    wrong = sorted(name for name, kind in kinds.items() if type(document[name]) is not kind)
    if wrong:
        raise NotCanonical(f"{what} has values of the wrong type: {', '.join(wrong)}")
    return document


def hexadecimal(text: Any, length: int, what: str) -> bytes:
    """Parse exactly `length` bytes of lower-case hexadecimal."""
    if type(text) is str and len(text) == 2 * length and not set(text) - set("0123456789abcdef"):
        return bytes.fromhex(text)
    raise NotCanonical(f"{what} must be {length} bytes in lower-case hexadecimal")


def by_id(ids: Iterable[str], what: str) -> None:
    """Raise `NotCanonical` unless ids ascend strictly by their bytes."""
    listed = [item.encode() for item in ids]
    if any(one >= other for one, other in pairwise(listed)):
        raise NotCanonical(f"{what} must be sorted by id without duplicates")


def rows(document: Any, kinds: Sequence[type], what: str) -> list[list[Any]]:
    """Return the document as a list of rows of these types, sorted by the id in the first column."""
    if type(document) is not list or any(
        type(row) is not list or [type(value) for value in row] != list(kinds) for row in document
    ):
        raise NotCanonical(f"{what} must be a list of rows of {len(kinds)} values")
    by_id((row[0] for row in document), what)
    return document


def _check(document: Any) -> None:
    check = _CHECKS.get(type(document))
    if check is None:
        raise NotCanonical(f"a document holds integers, strings, lists and objects, not {type(document).__name__}")
    check(document)


def _check_text(text: str) -> None:
    if not _SAFE.issuperset(text):
        raise NotCanonical("a document's strings are printable ASCII without quotes and backslashes")


def _check_list(items: list[Any]) -> None:
    for item in items:
        _check(item)


def _check_object(items: dict[Any, Any]) -> None:
    for name, item in items.items():
        if type(name) is not str:
            raise NotCanonical("a document's keys are strings")
        _check_text(name)
        _check(item)


_CHECKS: dict[type, Callable[[Any], None]] = {
    int: lambda number: None,
    str: _check_text,
    list: _check_list,
    dict: _check_object,
}

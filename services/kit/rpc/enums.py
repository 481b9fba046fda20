"""Enums of `enums.proto` ↔ the classes of that name in `coterie.records.enums`.

The mapping is by name: `TASK_STATE_RUNNING` is `TaskState.RUNNING`, whose text is "running". The unspecified number is
the empty text, which is not a member. Tables store the text (`services.kit.database.rows.EnumColumn`).
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import EnumDescriptor

from coterie.records import enums
from coterie.records.base import OpenEnum
from coterie_api.enums.v1 import enums_pb2

W = TypeVar("W", bound=OpenEnum)


def word(kind: type[W], number: int) -> W:
    """Return the member of an enum by its number."""
    return kind(text_in(kind.__name__, number))


def number(word: OpenEnum) -> Any:
    """Return the number of a member, typed as any of the generated enums."""
    return number_in(type(word).__name__, word)


def known_number(word: OpenEnum) -> Any:
    """Return the number of a member; 0, the unspecified one, for an unknown text."""
    return number(word) if word in list(type(word)) else 0


def number_in(enum: str, text: str) -> int:
    """Return the number of a text in an enum of `enums.proto`; raise ValueError with the valid texts."""
    numbers = _numbers(enum)
    if text not in numbers:
        raise ValueError(f"must be one of {', '.join(filter(None, numbers))}, not {str(text)!r}")
    return numbers[text]


def text_in(enum: str, number: int) -> str:
    """Return the text of a number in an enum of `enums.proto`; the number itself if a newer service added it."""
    result = _texts(enum).get(number)
    return str(number) if result is None else result


def prefix_of(enum: EnumDescriptor) -> str:
    """Return the prefix of an enum's value names: TASK_STATE_ for TaskState."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"


@cache
def _texts(enum: str) -> dict[int, str]:
    kind: type[OpenEnum] = getattr(enums, enum)
    descriptor = enums_pb2.DESCRIPTOR.enum_types_by_name[enum]
    prefix = prefix_of(descriptor)
    return {value.number: kind[value.name.removeprefix(prefix)] if value.number else "" for value in descriptor.values}


@cache
def _numbers(enum: str) -> dict[str, int]:
    return {text: number for number, text in _texts(enum).items()}

"""Words on the wire and in tables: enums of `enums.proto` ↔ the classes of that name in `coterie.records.enums`.

By name, and only here: `TASK_STATE_RUNNING` is `TaskState.RUNNING`, which is the word "running". The unspecified number
is the empty word, which is no member. In a table a word is text (`services.kit.database.rows.EnumColumn`).
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
    """The word of an enum's number."""
    return kind(text_in(kind.__name__, number))


def number(word: OpenEnum) -> Any:
    """The number of a word in the enum named like its class; its type is that enum's, whichever it is."""
    return number_in(type(word).__name__, word)


def known_number(word: OpenEnum) -> Any:
    """The number of a word; of one nobody knows, the unspecified one."""
    return number(word) if word in list(type(word)) else 0


def number_in(enum: str, text: str) -> int:
    """The number of a word in an enum of `enums.proto`; raises ValueError with those it has."""
    numbers = _numbers(enum)
    if text not in numbers:
        raise ValueError(f"must be one of {', '.join(filter(None, numbers))}, not {str(text)!r}")
    return numbers[text]


def text_in(enum: str, number: int) -> str:
    """The word of a number in an enum of `enums.proto`; of one that a newer service made, its number."""
    result = _texts(enum).get(number)
    return str(number) if result is None else result


def prefix_of(enum: EnumDescriptor) -> str:
    """What the names of an enum's values begin with: TASK_STATE_ for TaskState."""
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

"""Convert JSON objects that a service stored to messages, by descriptor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_WHOLE = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)


def is_list(kind: Any) -> bool:
    """Whether a message type wraps an optional list, its `items`."""
    return bool(kind.name.endswith("List"))


def fill(message: Any, given: Mapping[str, Any]) -> None:
    """Copy an object into a message; skip unknown keys and null; read "inf" as a number."""
    fields: Mapping[str, FieldDescriptor] = message.DESCRIPTOR.fields_by_name
    for key, value in given.items():
        if key in fields and value is not None:
            _set(message, fields[key], value)


def _set(message: Message, field: FieldDescriptor, value: Any) -> None:
    target: Any = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        held = field.message_type.fields_by_name["value"]
        for key, item in value.items():
            target[key] = _scalar(held, item)
    elif field.is_repeated and field.message_type is not None:
        for item in value:
            fill(target.add(), item)
    elif field.is_repeated:
        target.extend([_scalar(field, item) for item in value])
    elif field.message_type is not None:
        fill(target, value)
        target.SetInParent()
    else:
        setattr(message, field.name, _scalar(field, value))


def _scalar(field: Any, value: Any) -> Any:
    if field.cpp_type in (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_BOOL):
        return value
    return int(value) if field.cpp_type in _WHOLE else float(value)

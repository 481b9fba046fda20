"""Protobuf ↔ JSON, once for every message: names as in the proto, every field present, no per-field code in routes.

Conventions beyond the obvious: bytes are base64 text, an enum is its text (see `services.kit.rpc.enums`), and a text
field `something_json` appears as the JSON object `something`. A message whose fields may be left out, such as a task's
parameters, appears as an object of what is set (see `services.kit.rpc.parameters`). Infinity, which JSON lacks, is the
string "inf" (as in the what-if contract). A message, or an optional scalar, that is not set is null; any other scalar
shows its zero. Of a oneof the field that is set appears under the oneof's name.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, TypeVar

import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from pydantic import BaseModel

from services.kit.errors import InvalidInput
from services.kit.rpc.enums import number_in, text_in
from services.kit.rpc.parameters import fill_struct, from_struct
from services.kit.rpc.proto_json import is_list

M = TypeVar("M", bound=Message)
Reader = Callable[[Any], Any]
JSON_SUFFIX = "_json"
_STRUCT = Struct.DESCRIPTOR.full_name


def json_name(field: FieldDescriptor) -> str:
    """Return the JSON name of a proto field."""
    choice = field.containing_oneof
    if choice is not None and len(choice.fields) > 1:  # the implicit oneof of an optional field has one field
        return str(choice.name)
    return field.name.removesuffix(JSON_SUFFIX)


def to_json(message: Message) -> dict[str, Any]:
    """Convert a message to plain Python for a JSON encoder."""
    return {key: read(message) for key, read in _readers(message.DESCRIPTOR)}


def page(reply: Message, field: str) -> dict[str, Any]:
    """Convert a list reply to `{items, next_cursor}`; the cursor is empty at the end."""
    return {
        "items": [to_json(item) for item in getattr(reply, field)],
        "next_cursor": getattr(reply, "next_cursor", ""),
    }


def to_proto(kind: type[M], body: BaseModel | Mapping[str, Any], **more: Any) -> M:
    """Make a message from a validated body, whose missing fields stay unset, and further fields by name."""
    given = body.model_dump(exclude_none=True) if isinstance(body, BaseModel) else dict(body)
    message = kind()
    _fill(message, given | more)
    return message


@cache
def _readers(descriptor: Descriptor) -> tuple[tuple[str, Reader], ...]:
    result = {json_name(field): _reader(field) for field in descriptor.fields}
    choices = {oneof.name: _choice_reader(oneof.name) for oneof in descriptor.oneofs if len(oneof.fields) > 1}
    return tuple((result | choices).items())


def _reader(field: FieldDescriptor) -> Reader:
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = _value_reader(field.message_type.fields_by_name["value"])
        return lambda message: {key: entry(value) for key, value in sorted(getattr(message, name).items())}
    value = _value_reader(field)
    if field.is_repeated:
        return lambda message: [value(item) for item in getattr(message, name)]
    if field.has_presence and not _is_document(field):
        return lambda message: value(getattr(message, name)) if message.HasField(name) else None
    return lambda message: value(getattr(message, name))


def _value_reader(field: Any) -> Reader:
    if field.message_type is None:
        return _scalar_reader(field)
    if _is_document(field):
        return from_struct
    return _list_reader if is_list(field.message_type) else to_json


def _list_reader(message: Any) -> list[Any]:
    return list(message.items)


def _choice_reader(name: str) -> Reader:
    def read(message: Message) -> dict[str, Any]:
        member = message.WhichOneof(name)
        return {} if member is None else to_json(getattr(message, member))

    return read


def _is_document(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.full_name == _STRUCT


def _scalar_reader(field: FieldDescriptor) -> Reader:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda value: base64.b64encode(value).decode("ascii")
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return _finite
    if field.enum_type is not None:
        return partial(text_in, field.enum_type.name)
    if field.name.endswith(JSON_SUFFIX):
        return lambda text: orjson.loads(text) if text else {}
    return _same


def _finite(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def _same(value: Any) -> Any:
    return value


def _fill(message: Message, given: Mapping[str, Any]) -> None:
    fields = _fields(message.DESCRIPTOR)
    for key, value in given.items():
        field = fields[key]
        try:
            _set(message, field, value)
        except (TypeError, ValueError, binascii.Error) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"{key}: {error}", details={"field": key}) from error


@cache
def _fields(descriptor: Any) -> dict[str, FieldDescriptor]:
    return {json_name(field): field for field in descriptor.fields}


def _set(message: Message, field: FieldDescriptor, value: Any) -> None:
    target = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        scalar = field.message_type.fields_by_name["value"]
        target.update({key: _scalar(scalar, entry) for key, entry in value.items()})
    elif field.is_repeated and field.message_type is not None:
        for item in value:
            _fill(target.add(), item)
    elif field.is_repeated:
        target.extend(_scalar(field, item) for item in value)
    elif _is_document(field):
        fill_struct(target, value, json_name(field))
    elif field.message_type is not None:
        target.SetInParent()
        _fill(target, value)
    else:
        setattr(message, field.name, _scalar(field, value))


def _scalar(field: FieldDescriptor, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return base64.b64decode(value, validate=True)
    if field.enum_type is not None:
        return number_in(field.enum_type.name, value)
    if field.name.endswith(JSON_SUFFIX):
        return orjson.dumps(value).decode()
    return value

"""JSON objects ↔ messages whose fields may be left out, such as a task's parameters; by descriptor, and only here.

An object holds what is set and nothing else, so that what is not given is told from 0. Reading refuses a key that the
message does not have with the nearest one it has, and a value of another kind; null is not given. A number may come as
text. Objects that an earlier version stored are taken as they are: what nobody knows any more is left out, and a number
may be the word "inf" or "nan".
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value

from coterie_api.parameters.v1 import parameters_pb2
from coterie_api.parameters.v1.parameters_pb2 import TaskParameters
from services.kit.errors import InvalidInput
from services.kit.rpc.enums import number_in, text_in

M = TypeVar("M", bound=Message)
PACKAGE = parameters_pb2.DESCRIPTOR.package
"""Messages of this package are shown as such objects."""
_VALUE = Value.DESCRIPTOR.full_name
_WHOLE = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)


class BadParameters(InvalidInput):
    """A key nobody knows, or a value of the wrong kind."""


def to_dict(message: Message) -> dict[str, Any]:
    """What is set in a message, as an object."""
    return {field.name: _shown(field, value) for field, value in message.ListFields()}


def parse(kind: type[M], given: object, place: str) -> M:
    """The message an object says; `place` is what to call it in a refusal."""
    message = kind()
    parse_into(message, given, place)
    return message


def parse_into(message: Message, given: object, place: str) -> None:
    """Sets in a message what an object says."""
    _fill(message, given, place, strict=True)


def read_parameters(given: object) -> TaskParameters:
    """A task's parameters from an object."""
    return parse(TaskParameters, given, "parameters")


def parameters_of(text: str) -> TaskParameters:
    """A task's parameters from stored JSON text, whichever version stored it; a copy that is the caller's."""
    return TaskParameters.FromString(_stored(text))


def text_of(parameters: TaskParameters) -> str:
    """A task's parameters as JSON text to store; equal parameters give equal text."""
    try:
        return json.dumps(to_dict(parameters), sort_keys=True, allow_nan=False)
    except ValueError as error:
        raise BadParameters("parameters: a number is not finite; leave it out or give another") from error


def take(message: Message, given: object) -> None:
    """Sets in a message what an earlier version's object says, as far as the message can hold it."""
    _fill(message, given, "", strict=False)


def is_list(kind: Any) -> bool:
    """Whether a message stands for the list of its `items`, which may be left out."""
    return bool(kind.name.endswith("List"))


@lru_cache(maxsize=1024)
def _stored(text: str) -> bytes:
    parameters = TaskParameters()
    take(parameters, json.loads(text or "{}"))
    return parameters.SerializeToString()


# --- out --------------------------------------------------------------------------------------------------------------


def _shown(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None:
        return text_in(field.enum_type.name, value)
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if is_list(field.message_type):
        return [to_dict(item) if isinstance(item, Message) else item for item in value.items]
    return _any_shown(value) if field.message_type.full_name == _VALUE else to_dict(value)


def _any_shown(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind in (None, "null_value"):
        return None
    found = getattr(value, kind)
    return int(found) if isinstance(found, float) and found.is_integer() else found


# --- in ---------------------------------------------------------------------------------------------------------------


def _fill(message: Any, given: object, place: str, *, strict: bool) -> None:
    fields: Mapping[str, Any] = message.DESCRIPTOR.fields_by_name
    if is_list(message.DESCRIPTOR):
        _extend(message.items, fields["items"], given, place, strict=strict)
        return
    if not isinstance(given, Mapping):
        if strict:
            raise BadParameters(f"{place}: must be a JSON object, not {_told(given)}", details={"field": place})
        return
    for key, value in given.items():
        spot = f"{place}.{str(key)[:50]}"
        if key not in fields:
            if strict:
                raise BadParameters(f"{spot}: no such parameter{_nearest(key, fields)}", details={"field": spot})
            continue
        try:
            _set(message, fields[key], value, spot, strict=strict)
        except (TypeError, ValueError) as error:
            if isinstance(error, BadParameters):
                raise
            if strict:
                raise BadParameters(f"{spot}: {error}, not {_told(value)}", details={"field": spot}) from error


def _set(message: Message, field: FieldDescriptor, value: object, place: str, *, strict: bool) -> None:
    if field.message_type is not None and field.message_type.full_name == _VALUE:
        _set_any(getattr(message, field.name), value)
    elif value is None:
        return
    elif field.is_repeated:
        _extend(getattr(message, field.name), field, value, place, strict=strict)
    elif field.message_type is not None:
        section = getattr(message, field.name)
        _fill(section, value, place, strict=strict)
        section.SetInParent()
    else:
        setattr(message, field.name, _scalar(field, value, strict=strict))


def _set_any(target: Value, value: object) -> None:
    if value is None:
        target.null_value = 0  # type: ignore[assignment]  # the only number of its enum
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int | float):
        target.number_value = value
    elif isinstance(value, str):
        target.string_value = value
    else:
        raise TypeError("must be a number, a word or null")


def _extend(target: Any, field: FieldDescriptor, value: object, place: str, *, strict: bool) -> None:
    kind = field.message_type
    if kind is None:
        target.extend([_scalar(field, item, strict=strict) for item in _listed(value)])
    elif not kind.GetOptions().map_entry:
        for item in _listed(value):
            _fill(target.add(), item, place, strict=strict)
    elif not isinstance(value, Mapping):
        raise TypeError("must be a JSON object")
    else:
        held = kind.fields_by_name["value"]
        for key, item in value.items():
            if held.message_type is None:
                target[key] = _scalar(held, item, strict=strict)
            else:
                _fill(target[key], item, place, strict=strict)


def _listed(value: object) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError("must be a list")
    return value


def _scalar(field: Any, value: object, *, strict: bool) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        if not isinstance(value, str):
            raise TypeError("must be text")
        return value
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if not isinstance(value, bool):
            raise TypeError("must be true or false")
        return value
    if field.enum_type is not None:
        if not isinstance(value, str):
            raise TypeError("must be a word")
        return number_in(field.enum_type.name, value)
    return _number(value, whole=field.cpp_type in _WHOLE, finite=strict)


def _number(value: object, *, whole: bool, finite: bool) -> float:
    wanted = "must be a whole number" if whole else "must be a number"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(wanted)
    try:
        found = value if isinstance(value, int) else float(value)
        if (finite and not math.isfinite(found)) or (whole and not -(2**63) <= found < 2**63):
            raise ValueError(wanted)
    except (ValueError, OverflowError) as error:
        raise ValueError(wanted) from error
    if whole and found != int(found):
        raise ValueError(wanted)
    return int(found) if whole else float(found)


def _nearest(key: object, among: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(str(key), list(among), 1)
    return f", did you mean {near[0]!r}?" if near else f"; there are: {', '.join(among)}"


def _told(value: object) -> str:
    return repr(value)[:60]

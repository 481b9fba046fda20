"""What a newer version may not take away: comparisons of two OpenAPI documents and of two sets of protobuf files."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet, MethodDescriptorProto

PROTOS = Path(__file__).parents[2] / "protos"
OpenApi = Mapping[str, Any]
_REF = "#/components/schemas/"


def describe_protos() -> FileDescriptorSet:
    """Return the descriptors of all messages of this code."""
    descriptors = FileDescriptorSet()
    for path in sorted(PROTOS.rglob("*.proto")):
        name = ".".join(path.relative_to(PROTOS).with_suffix("").parts) + "_pb2"
        importlib.import_module(name).DESCRIPTOR.CopyToProto(descriptors.file.add())
    return descriptors


def rest_breaks(old: OpenApi, new: OpenApi) -> Iterator[str]:
    """What a client of the old document would miss in the new one: a route, a field, a word, or a new duty."""
    for path, operations in old["paths"].items():
        for method, before in operations.items():
            place = f"{method.upper()} {path}"
            after = new["paths"].get(path, {}).get(method)
            if after is None:
                yield f"{place} is gone"
                continue
            yield from _parameters(place, before.get("parameters", []), after.get("parameters", []))
            asked, asks = _json_of(before.get("requestBody")), _json_of(after.get("requestBody"))
            if asks is not None:
                yield from _Walk(old, new, sent=True).compare(f"{place} body", asked or {}, asks)
            for status, response in before["responses"].items():
                document = _json_of(response)
                if status.startswith("2") and document is not None:
                    tells = _json_of(after["responses"].get(status)) or {}
                    yield from _Walk(old, new, sent=False).compare(f"{place} {status}", document, tells)


def _json_of(holder: Mapping[str, Any] | None) -> Any:
    return (holder or {}).get("content", {}).get("application/json", {}).get("schema")


def _parameters(place: str, old: list[Any], new: list[Any]) -> Iterator[str]:
    before = {(item["in"], item["name"]): item for item in old}
    after = {(item["in"], item["name"]): item for item in new}
    for key in before.keys() - after.keys():
        yield f"{place}: parameter {key[1]} is gone"
    for key, item in after.items():
        if item.get("required") and not before.get(key, {}).get("required"):
            yield f"{place}: parameter {key[1]} has become necessary"


class _Walk:
    """Two schemas side by side, references followed, each pair of references once."""

    def __init__(self, old: OpenApi, new: OpenApi, *, sent: bool) -> None:
        self._schemas = old["components"]["schemas"], new["components"]["schemas"]
        self._sent = sent
        self._seen: set[tuple[str, str]] = set()

    def compare(self, place: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
        names = old.get("$ref", ""), new.get("$ref", "")
        if names[0]:
            if names in self._seen:
                return
            self._seen.add(names)
        old, new = self._resolve(old, 0), self._resolve(new, 1)
        if lost := set(_words(old)) - set(_words(new)) if _words(new) else ():
            yield f"{place}: no longer {', '.join(sorted(map(str, lost)))}"
        for name, field in old.get("properties", {}).items():
            if name in new.get("properties", {}):
                yield from self.compare(f"{place}.{name}", field, new["properties"][name])
            elif "properties" in new or not self._sent:
                yield f"{place}.{name} is gone"
        if self._sent:
            for name in set(new.get("required", ())) - set(old.get("required", ())):
                yield f"{place}.{name} has become necessary"
        if "items" in old and "items" in new:
            yield from self.compare(f"{place}[]", old["items"], new["items"])

    def _resolve(self, schema: Mapping[str, Any], side: int) -> Mapping[str, Any]:
        """The schema itself; of "this or nothing" the this."""
        for choice in schema.get("anyOf", ()):
            if choice.get("type") != "null":
                return self._resolve(choice, side)
        if reference := schema.get("$ref"):
            result: Mapping[str, Any] = self._schemas[side][reference.removeprefix(_REF)]
            return self._resolve(result, side)
        return schema


def _words(schema: Mapping[str, Any]) -> list[Any]:
    return schema.get("enum") or ([schema["const"]] if "const" in schema else [])


def proto_breaks(old: FileDescriptorSet, new: FileDescriptorSet) -> Iterator[str]:
    """What stored messages and older services would read wrongly: a call or a field gone or of another meaning."""
    calls, calls_now = dict(_calls(old)), dict(_calls(new))
    for name, call in calls.items():
        if name not in calls_now:
            yield f"{name} is gone"
        elif _shape(call) != _shape(calls_now[name]):
            yield f"{name} takes or gives another message"
    messages_now = dict(_messages(new))
    for name, message in _messages(old):
        if name not in messages_now:
            yield f"{name} is gone"
            continue
        after = messages_now[name]
        fields = {field.number: field for field in after.field}
        for field in message.field:
            now = fields.get(field.number)
            if now is None:
                if not any(retained.start <= field.number < retained.end for retained in after.reserved_range):
                    yield f"{name}.{field.name} is gone and its number {field.number} not reserved"
            elif (now.name, now.type, now.label, now.type_name) != (
                field.name,
                field.type,
                field.label,
                field.type_name,
            ):
                yield f"{name}.{field.name} has changed its name or type"


def _shape(call: MethodDescriptorProto) -> tuple[object, ...]:
    return call.input_type, call.output_type, call.client_streaming, call.server_streaming


def _calls(files: FileDescriptorSet) -> Iterator[tuple[str, MethodDescriptorProto]]:
    for file in files.file:
        for service in file.service:
            for call in service.method:
                yield f"{service.name}.{call.name}", call


def _messages(files: FileDescriptorSet) -> Iterator[tuple[str, DescriptorProto]]:
    for file in files.file:
        area = file.package.split(".")[-2]
        waiting = [(f"{area}.{message.name}", message) for message in file.message_type]
        while waiting:
            name, message = waiting.pop()
            yield name, message
            waiting += [(f"{name}.{inner.name}", inner) for inner in message.nested_type]

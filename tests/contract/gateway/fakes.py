"""The four services, faked behind real gRPC: every RPC answers a plausible message, and remembers who asked what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Value

from coterie_api.aggregation.v1 import aggregation_pb2, aggregation_pb2_grpc
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.pricing.v1 import pricing_pb2, pricing_pb2_grpc
from coterie_api.topology.v1 import topology_pb2, topology_pb2_grpc
from coterie_api.trust.v1 import trust_pb2, trust_pb2_grpc
from services.gateway.settings import GatewaySettings
from services.kit.errors import Unauthenticated
from services.kit.rpc import sockets
from services.kit.rpc.principal import Principal, current_principal, current_request_id
from services.kit.rpc.server import Server

KEYS = {
    "admin-key": trust_pb2.Principal(role=words.PRINCIPAL_ROLE_ADMIN, subject="adm_1", name="root", key_id="key_1"),
    "publisher-key": trust_pb2.Principal(
        role=words.PRINCIPAL_ROLE_PUBLISHER, subject="pub_1", name="hospital", key_id="key_2"
    ),
    "browser-key": trust_pb2.Principal(
        role=words.PRINCIPAL_ROLE_DEVICE,
        subject="dev_1",
        name="phone",
        owner_id="own_1",
        key_id="key_4",
        link_id="lnk_1",
    ),
    "device-key": trust_pb2.Principal(
        role=words.PRINCIPAL_ROLE_DEVICE, subject="dev_1", name="phone", owner_id="own_1", key_id="key_3"
    ),
}


def known_keys() -> trust_pb2.ListKeysReply:
    """The keys of the admin and the publisher, as the registry lists them."""
    holders = [item for item in KEYS.values() if item.role != words.PRINCIPAL_ROLE_DEVICE]
    return trust_pb2.ListKeysReply(keys=[trust_pb2.KeyInfo(id=holder.key_id, principal=holder) for holder in holders])


_PROTOS = (
    (trust_pb2, trust_pb2_grpc),
    (topology_pb2, topology_pb2_grpc),
    (pricing_pb2, pricing_pb2_grpc),
    (aggregation_pb2, aggregation_pb2_grpc),
)
Reply = Message | Exception | Callable[[Any], Awaitable[Message]]


class UnknownKey(Unauthenticated):
    """As the registry says it."""


@dataclass(slots=True)
class Call:
    """One call a fake service got."""

    method: str
    request: Any
    caller: Principal
    request_id: str


@dataclass(slots=True)
class FakePlatform:
    """All services on one port. `replies` overrides what an RPC answers; `calls` is what came."""

    server: Server
    address: str
    keys: dict[str, trust_pb2.Principal] = field(default_factory=lambda: dict(KEYS))
    replies: dict[str, Reply] = field(default_factory=lambda: {"ListKeys": known_keys()})
    calls: list[Call] = field(default_factory=list)

    @classmethod
    async def start(cls, folder: Path) -> FakePlatform:
        """Fakes behind one socket."""
        address = sockets.address(folder, "fakes")
        platform = cls(Server(GatewaySettings(data_dir=folder, drain_seconds=0), address), address)
        for messages, stubs in _PROTOS:
            for name, service in messages.DESCRIPTOR.services_by_name.items():
                methods = {method.name: platform._rpc(method) for method in service.methods}
                servicer = type(f"Fake{name}", (getattr(stubs, f"{name}Servicer"),), methods)()
                platform.server.add(getattr(stubs, f"add_{name}Servicer_to_server"), servicer, service.full_name)
        await platform.server.start()
        return platform

    def settings(self, folder: Path, **more: Any) -> GatewaySettings:
        """Settings of a gateway before these fakes."""
        names = ("trust_address", "topology_address", "pricing_address", "aggregation_address")
        addresses: dict[str, Any] = dict.fromkeys(names, self.address)
        return GatewaySettings(data_dir=folder, gateway_port=0, drain_seconds=2, **(addresses | more))

    def called(self, method: str) -> list[Call]:
        """Calls of one RPC, in order."""
        return [call for call in self.calls if call.method == method]

    def _rpc(self, method: Any) -> Callable[..., Awaitable[Message]]:
        async def behave(_: object, request: Any, __: object) -> Message:
            self.calls.append(Call(method.name, request, current_principal(), current_request_id()))
            reply = self.replies.get(method.name)
            if isinstance(reply, Exception):
                raise reply
            if isinstance(reply, Message):
                return reply
            if reply is not None:
                return await reply(request)
            if method.name == "Authenticate":
                return self._authenticate(request.api_key)
            return sample(GetMessageClass(method.output_type))

        return behave

    def _authenticate(self, key: str) -> trust_pb2.Principal:
        if key not in self.keys:
            raise UnknownKey("the API key is not known; ask an admin for one")
        return self.keys[key]


_TEXTS = {
    "next_cursor": "",
    "outcome": "accepted",
    "role": "device",
    "state": "active",
    "publisher": "pub_1",
    "link_class": "wifi",
    "text": "[]",
}


def sample(kind: type[Message]) -> Message:
    """A message with something in every field."""
    message = kind()
    for spot in message.DESCRIPTOR.fields:
        value = _value(spot)
        target = getattr(message, spot.name)
        if spot.message_type is not None and spot.message_type.GetOptions().map_entry:
            held = _value(spot.message_type.fields_by_name["value"])
            if isinstance(held, Message):
                target["key"].CopyFrom(held)
            else:
                target["key"] = held
        elif spot.is_repeated:
            target.append(value)
        elif spot.message_type is not None:
            target.CopyFrom(value)
        else:
            setattr(message, spot.name, value)
    return message


def _value(spot: Any) -> Any:
    if spot.message_type is Value.DESCRIPTOR:
        return Value(string_value="recommended")
    if spot.message_type is not None:
        entry = spot.message_type.GetOptions().map_entry
        return None if entry else sample(GetMessageClass(spot.message_type))
    if spot.type == FieldDescriptor.TYPE_STRING:
        return '{"solved":true}' if spot.name.endswith("_json") else _TEXTS.get(spot.name, f"some_{spot.name}")
    if spot.enum_type is not None:
        return spot.enum_type.values[1].number
    if spot.type == FieldDescriptor.TYPE_BYTES:
        return bytes(range(32))
    if spot.type == FieldDescriptor.TYPE_BOOL:
        return True
    return 0.5 if spot.type == FieldDescriptor.TYPE_DOUBLE else 3

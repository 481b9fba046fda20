"""A real topology planner on each database, reached over real gRPC, beside a device registry that tests fill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.topology.v1.topology_pb2_grpc import TopologyStub
from coterie_api.trust.v1 import trust_pb2
from services.kit.rpc.channels import open_channel
from services.kit.rpc.principal import SERVICE, set_principal
from services.kit.rpc.server import Server
from services.kit.runtime.settings import ServiceSettings
from services.topology.app import App

if TYPE_CHECKING:
    from coterie_api.topology.v1.topology_pb2_grpc import TopologyAsyncStub


class FakeRegistry:
    """A registry that knows the devices it is given."""

    def __init__(self) -> None:
        self.devices: dict[str, trust_pb2.Device] = {}

    def join(self, _: object, server: grpc.aio.Server) -> None:
        """Adds the one RPC that planning in cells calls."""
        handler = grpc.unary_unary_rpc_method_handler(
            self.get_devices,
            request_deserializer=trust_pb2.GetDevicesRequest.FromString,
            response_serializer=trust_pb2.GetDevicesReply.SerializeToString,
        )
        generic = grpc.method_handlers_generic_handler("coterie_api.trust.v1.Registry", {"GetDevices": handler})
        server.add_generic_rpc_handlers((generic,))

    async def get_devices(self, request: trust_pb2.GetDevicesRequest, context: Any) -> trust_pb2.GetDevicesReply:
        return trust_pb2.GetDevicesReply(devices=[self.devices[device_id] for device_id in request.device_ids])

    def place(self, device_id: str, x: float, y: float) -> None:
        """A device at a position."""
        self.devices[device_id] = trust_pb2.Device(
            id=device_id, name=device_id, location=trust_pb2.Location(x_metres=x, y_metres=y)
        )


@dataclass
class World:
    """A running planner, how to talk to it, and how to start it again."""

    settings: ServiceSettings
    registry: FakeRegistry
    app: App
    channel: grpc.aio.Channel
    topology: TopologyAsyncStub = field(init=False)

    def __post_init__(self) -> None:
        self.topology = TopologyStub(self.channel)

    async def restart(self) -> None:
        """Stops the planner and starts it again on the same data."""
        await self.close()
        self.app, self.channel = await _start(self.settings)
        self.topology = TopologyStub(self.channel)

    async def close(self) -> None:
        """Stops the planner."""
        await self.channel.close()
        await self.app.stop()

    async def put_cell(self, cell_id: str = "roof", **changes: Any) -> pb.Cell:
        """A cell with sensible values."""
        values = {
            "blocks": 4,
            "power_watts": 0.01,
            "bandwidth_hertz": 150e3,
            "delay_limit_seconds": 0.4,
            "radius_metres": 400.0,
        }
        return await self.topology.PutCell(pb.Cell(id=cell_id, **(values | changes)))

    async def policies(self) -> list[pb.Policy]:
        """All policies."""
        return list((await self.topology.ListPolicies(pb.ListPoliciesRequest())).policies)

    async def no_training(self) -> bool:
        """Whether every training has ended."""
        return all(policy.state != words.POLICY_STATE_TRAINING for policy in await self.policies())

    async def until(self, condition: Callable[[], Awaitable[bool]], seconds: float = 180.0) -> None:
        """Returns when the condition holds."""
        async with asyncio.timeout(seconds):
            while not await condition():  # noqa: ASYNC110 - a condition of another process
                await asyncio.sleep(0.05)


async def _start(settings: ServiceSettings) -> tuple[App, grpc.aio.Channel]:
    app = App(settings, "127.0.0.1:0")
    await app.start()
    return app, open_channel(settings, f"127.0.0.1:{app.server.port}")


@pytest.fixture
async def world(settings: ServiceSettings, compiled_planners: None) -> AsyncIterator[World]:
    """A planner on a fresh database."""
    set_principal(SERVICE)
    registry = FakeRegistry()
    trust = Server(settings, "127.0.0.1:0")
    trust.add(registry.join, registry, "coterie_api.trust.v1.Registry")
    await trust.start()
    own = settings.model_copy(update={"trust_address": f"127.0.0.1:{trust.port}", "drain_seconds": 1.0})
    app, channel = await _start(own)
    made = World(own, registry, app, channel)
    yield made
    set_principal(SERVICE)
    await made.close()
    await trust.stop()

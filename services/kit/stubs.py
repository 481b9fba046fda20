"""The four services as their callers see them: stubs over one channel each, and whether each is there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from coterie_api.aggregation.v1.aggregation_pb2_grpc import SumsStub, TasksStub, WorkStub
from coterie_api.pricing.v1.pricing_pb2_grpc import LedgerStub, PricingStub
from coterie_api.topology.v1.topology_pb2_grpc import TopologyStub
from coterie_api.trust.v1.trust_pb2_grpc import LinksStub, RegistryStub, TrustStub
from services.kit.errors import CoterieError
from services.kit.settings import ServiceSettings
from services.kit.upstream import open_channel

if TYPE_CHECKING:  # these exist in the type stubs alone
    from coterie_api.aggregation.v1.aggregation_pb2_grpc import SumsAsyncStub, TasksAsyncStub, WorkAsyncStub
    from coterie_api.pricing.v1.pricing_pb2_grpc import LedgerAsyncStub, PricingAsyncStub
    from coterie_api.topology.v1.topology_pb2_grpc import TopologyAsyncStub
    from coterie_api.trust.v1.trust_pb2_grpc import LinksAsyncStub, RegistryAsyncStub, TrustAsyncStub

HEALTH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Upstreams:
    """Stubs of every service, over one channel each."""

    channels: dict[str, grpc.aio.Channel]
    registry: RegistryAsyncStub
    links: LinksAsyncStub
    trust: TrustAsyncStub
    topology: TopologyAsyncStub
    pricing: PricingAsyncStub
    ledger: LedgerAsyncStub
    tasks: TasksAsyncStub
    work: WorkAsyncStub
    sums: SumsAsyncStub

    @classmethod
    def open(cls, settings: ServiceSettings) -> Upstreams:
        """Channels to the addresses in the settings; call from within the event loop."""
        channels = {
            "trust": open_channel(settings, settings.trust_address),
            "topology": open_channel(settings, settings.topology_address),
            "pricing": open_channel(settings, settings.pricing_address),
            "aggregation": open_channel(settings, settings.aggregation_address),
        }
        return cls(
            channels,
            registry=RegistryStub(channels["trust"]),
            links=LinksStub(channels["trust"]),
            trust=TrustStub(channels["trust"]),
            topology=TopologyStub(channels["topology"]),
            pricing=PricingStub(channels["pricing"]),
            ledger=LedgerStub(channels["pricing"]),
            tasks=TasksStub(channels["aggregation"]),
            work=WorkStub(channels["aggregation"]),
            sums=SumsStub(channels["aggregation"]),
        )

    async def health(self) -> dict[str, str]:
        """For each service "serving", or "away"."""
        states = await asyncio.gather(*(_health(channel) for channel in self.channels.values()))
        return {name: state for name, (state, _) in zip(self.channels, states, strict=True)}

    async def versions(self) -> dict[str, dict[str, str | float]]:
        """For each service its version, its commit and when its certificates end; all empty of one that is away."""
        states = await asyncio.gather(*(_health(channel) for channel in self.channels.values()))
        return {name: told for name, (_, told) in zip(self.channels, states, strict=True)}

    async def close(self) -> None:
        """Closes every channel."""
        for channel in self.channels.values():
            await channel.close()


async def _health(channel: grpc.aio.Channel) -> tuple[str, dict[str, str | float]]:
    """Whether a service serves, and what it says of itself."""
    told: dict[str, str | float] = {"version": "", "commit": "", "certificate_ends_at": 0.0}
    try:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # the stub's type knows no methods
        call = stub.Check(health_pb2.HealthCheckRequest(), timeout=HEALTH_SECONDS)
        reply = await call
        metadata = dict(await call.initial_metadata())
        told |= {name: str(metadata.get(f"coterie-{name}", "")) for name in ("version", "commit")}
        told["certificate_ends_at"] = float(metadata.get("coterie-certificate-ends", 0.0))
    except CoterieError:
        return "away", told
    return ("serving" if reply.status == health_pb2.HealthCheckResponse.SERVING else "away"), told

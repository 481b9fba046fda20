"""Clients of the four services: stubs over one channel each, and their health."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc.aio

from coterie_api.aggregation.v1.aggregation_pb2_grpc import SumsStub, TasksStub, WorkStub
from coterie_api.pricing.v1.pricing_pb2_grpc import LedgerStub, PricingStub
from coterie_api.topology.v1.topology_pb2_grpc import TopologyStub
from coterie_api.trust.v1.trust_pb2_grpc import LinksStub, RegistryStub, TrustStub
from services.kit.rpc.channels import open_channel
from services.kit.rpc.replicas import ReplicaStatus, ask, replicas_at
from services.kit.runtime.settings import ServiceSettings

if TYPE_CHECKING:  # these exist only in the type stubs
    from coterie_api.aggregation.v1.aggregation_pb2_grpc import SumsAsyncStub, TasksAsyncStub, WorkAsyncStub
    from coterie_api.pricing.v1.pricing_pb2_grpc import LedgerAsyncStub, PricingAsyncStub
    from coterie_api.topology.v1.topology_pb2_grpc import TopologyAsyncStub
    from coterie_api.trust.v1.trust_pb2_grpc import LinksAsyncStub, RegistryAsyncStub, TrustAsyncStub


@dataclass(frozen=True, slots=True)
class ServiceClients:
    """Stubs of every service, over one channel each."""

    settings: ServiceSettings
    addresses: dict[str, str]
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
    def open(cls, settings: ServiceSettings) -> ServiceClients:
        """Open channels to the addresses in the settings; call from within the event loop."""
        addresses = {
            "trust": settings.trust_address,
            "topology": settings.topology_address,
            "pricing": settings.pricing_address,
            "aggregation": settings.aggregation_address,
        }
        channels = {name: open_channel(settings, address) for name, address in addresses.items()}
        return cls(
            settings,
            addresses,
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
        """Return "serving" or "away" for each service."""
        statuses = await asyncio.gather(*(ask(channel) for channel in self.channels.values()))
        return {name: status["state"] for name, status in zip(self.channels, statuses, strict=True)}

    async def replicas(self) -> dict[str, list[ReplicaStatus]]:
        """Return the status of every replica, by service."""
        result = await asyncio.gather(
            *(replicas_at(self.settings, self.addresses[name], channel) for name, channel in self.channels.items())
        )
        return dict(zip(self.channels, result, strict=True))

    async def close(self) -> None:
        """Close every channel."""
        for channel in self.channels.values():
            await channel.close()

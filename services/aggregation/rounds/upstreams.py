"""The services that aggregation calls, and what it asks of each in the life of a round."""

from __future__ import annotations

from dataclasses import dataclass

import grpc.aio

from coterie_api.pricing.v1 import pricing_pb2_grpc
from coterie_api.topology.v1 import topology_pb2_grpc
from coterie_api.trust.v1 import trust_pb2_grpc
from services.kit.settings import ServiceSettings
from services.kit.upstream import open_channel


@dataclass(frozen=True, slots=True)
class Upstreams:
    """Stubs of the other services over channels of their own."""

    registry: trust_pb2_grpc.RegistryAsyncStub
    trust: trust_pb2_grpc.TrustAsyncStub
    topology: topology_pb2_grpc.TopologyAsyncStub
    pricing: pricing_pb2_grpc.PricingAsyncStub
    ledger: pricing_pb2_grpc.LedgerAsyncStub
    channels: tuple[grpc.aio.Channel, ...]

    @classmethod
    def connect(cls, settings: ServiceSettings) -> Upstreams:
        """Opens the channels; nothing is sent yet."""
        trust = open_channel(settings, settings.trust_address)
        topology = open_channel(settings, settings.topology_address)
        pricing = open_channel(settings, settings.pricing_address)
        return cls(
            trust_pb2_grpc.RegistryStub(trust),
            trust_pb2_grpc.TrustStub(trust),
            topology_pb2_grpc.TopologyStub(topology),
            pricing_pb2_grpc.PricingStub(pricing),
            pricing_pb2_grpc.LedgerStub(pricing),
            (trust, topology, pricing),
        )

    async def close(self) -> None:
        """Closes the channels."""
        for channel in self.channels:
            await channel.close()

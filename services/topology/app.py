"""The topology planner put together."""

from __future__ import annotations

from coterie_api.topology.v1 import topology_pb2, topology_pb2_grpc
from coterie_api.trust.v1 import trust_pb2_grpc
from services.kit.database.blobs import BlobStore
from services.kit.database.engine import Database
from services.kit.notify.notifier import Notifier
from services.kit.notify.replica_notifier import ReplicaNotifier
from services.kit.rpc.channels import open_channel
from services.kit.rpc.server import Server
from services.kit.rpc.whatif_service import WhatIfService
from services.kit.runtime.clock import SharedClock
from services.kit.runtime.settings import ServiceSettings
from services.kit.runtime.workers import PLANNING_NICENESS, Workers
from services.topology.planners.base import Sources
from services.topology.servicer.stations import StationsServicer
from services.topology.servicer.topology import TopologyServicer
from services.topology.usecases.cells import RegisteredCells
from services.topology.usecases.committees import Committees
from services.topology.usecases.links import Links
from services.topology.usecases.plans import Plans
from services.topology.usecases.policies import Policies
from services.topology.usecases.stations import Stations
from services.topology.whatif import SOLVERS


class App:
    """Everything the process holds, started and stopped together."""

    def __init__(self, settings: ServiceSettings, address: str) -> None:
        self.database = Database(settings.database_for("topology"), "topology")
        self.clock = SharedClock(self.database)
        self.channel = open_channel(settings, settings.trust_address)
        sources = Sources(
            trust_pb2_grpc.RegistryStub(self.channel),
            trust_pb2_grpc.TrustStub(self.channel),
            self.database,
            self.clock,
        )
        blobs = BlobStore.from_settings(settings)
        self.policies = Policies(self.database, blobs, settings, sources.clock)
        self.notifier = Notifier()
        self.replica_notifier = ReplicaNotifier(self.database, self.notifier)
        self.stations = Stations(self.database, self.notifier, self.replica_notifier, self.clock)
        self.workers = Workers(settings.workers, niceness=PLANNING_NICENESS)
        self.questions = WhatIfService(SOLVERS, settings)
        self.server = Server(settings, address)
        self.server.add(
            topology_pb2_grpc.add_TopologyServicer_to_server,
            TopologyServicer(
                plans=Plans(sources, self.workers, {"cells": (self.policies, self.stations)}),
                links=Links(self.database, sources.clock),
                cells=RegisteredCells(self.database, sources.clock),
                policies=self.policies,
                committees=Committees(sources),
                questions=self.questions,
            ),
            topology_pb2.DESCRIPTOR.services_by_name["Topology"].full_name,
        )
        self.server.add(
            topology_pb2_grpc.add_StationsServicer_to_server,
            StationsServicer(self.stations),
            topology_pb2.DESCRIPTOR.services_by_name["Stations"].full_name,
        )

    async def start(self) -> None:
        """Migrates, takes up unfinished trainings and answers."""
        await self.database.migrate("services.topology")
        await self.clock.start()
        await self.replica_notifier.start()
        await self.policies.start()
        await self.server.start()

    async def stop(self) -> None:
        """Lets open calls end and closes everything."""
        self.notifier.close()
        await self.server.stop()
        await self.questions.close()
        await self.workers.close()
        await self.policies.stop()
        await self.replica_notifier.stop()
        await self.channel.close()
        await self.clock.stop()
        await self.database.close()

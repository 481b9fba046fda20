"""Composition root of the pricing engine: the only file that knows all the others."""

from __future__ import annotations

from coterie_api.pricing.v1 import pricing_pb2, pricing_pb2_grpc
from coterie_api.trust.v1.trust_pb2_grpc import TrustStub
from services.kit.database.engine import Database
from services.kit.rpc.channels import open_channel
from services.kit.rpc.server import Server
from services.kit.rpc.whatif_service import WhatIfService
from services.kit.runtime.clock import Clock, SharedClock
from services.kit.runtime.workers import PLANNING_NICENESS, Workers
from services.pricing.servicer.ledger import LedgerServicer
from services.pricing.servicer.pricing import PricingServicer
from services.pricing.settings import PricingSettings
from services.pricing.usecases.accounts import Accounts
from services.pricing.usecases.quoting import Quoting
from services.pricing.usecases.reports import Reports
from services.pricing.usecases.settling import Settling
from services.pricing.usecases.ties import RegistryTies
from services.pricing.whatif import SOLVERS

_SERVICES = pricing_pb2.DESCRIPTOR.services_by_name


class App:
    """A pricing engine: `start`, then `stop`. With port 0 in `address` it takes a free port (see `port`)."""

    def __init__(self, settings: PricingSettings, address: str, clock: Clock | None = None) -> None:
        self._database = Database(settings.database_for("pricing"), "pricing")
        self._shared = SharedClock(self._database)
        clock = clock or self._shared
        self._trust = open_channel(settings, settings.trust_address)
        self._workers = Workers(settings.workers, niceness=PLANNING_NICENESS)
        self._questions = WhatIfService(SOLVERS, settings)
        quoting = Quoting(self._database, clock, RegistryTies(TrustStub(self._trust)), self._workers)
        ledger = LedgerServicer(
            Accounts(self._database, clock),
            Settling(self._database, clock, settings.fee_parts_per_million),
            Reports(self._database, clock),
        )
        self._server = Server(settings, address)
        self._server.add(
            pricing_pb2_grpc.add_PricingServicer_to_server,
            PricingServicer(quoting, self._questions),
            _SERVICES["Pricing"].full_name,
        )
        self._server.add(pricing_pb2_grpc.add_LedgerServicer_to_server, ledger, _SERVICES["Ledger"].full_name)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.port

    async def start(self) -> None:
        """Migrate the database, then serve."""
        await self._database.migrate("services.pricing")
        await self._shared.start()
        await self._server.start()

    async def stop(self) -> None:
        """Finish open calls, then close everything."""
        await self._server.stop()
        await self._questions.close()
        await self._workers.close()
        await self._trust.close()
        await self._shared.stop()
        await self._database.close()

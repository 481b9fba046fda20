"""Composition root of the trust registry: the only file that knows all the others."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from coterie_api.trust.v1 import trust_pb2, trust_pb2_grpc
from services.kit.database.engine import Database
from services.kit.errors import Unavailable
from services.kit.observability.logs import get_logger
from services.kit.rpc.server import Server
from services.kit.rpc.whatif_service import WhatIfService
from services.kit.runtime.clock import Clock, SharedClock
from services.trust.domain.relations import DEFAULT_RULES, SUGGESTED
from services.trust.servicer.pairing import LinksServicer
from services.trust.servicer.registry import RegistryServicer
from services.trust.servicer.social import TrustServicer
from services.trust.settings import TrustSettings
from services.trust.usecases.auditing import Auditing
from services.trust.usecases.devices import Devices
from services.trust.usecases.directory import Directory
from services.trust.usecases.encounters import Encountering
from services.trust.usecases.erasure import Erasure
from services.trust.usecases.graphs import Graphs
from services.trust.usecases.heartbeats import Heartbeats
from services.trust.usecases.history import TrustHistory
from services.trust.usecases.imports import Imports
from services.trust.usecases.inheritance import Inheritance
from services.trust.usecases.keys import Keys
from services.trust.usecases.owners import Owners
from services.trust.usecases.pairing import Links
from services.trust.usecases.recording import Recording
from services.trust.usecases.relations import SocialRelations
from services.trust.usecases.scores import Scores
from services.trust.usecases.trust_cache import TrustCache
from services.trust.usecases.visibility import Visibility
from services.trust.whatif import SOLVERS

_SERVICES = trust_pb2.DESCRIPTOR.services_by_name
_log = get_logger()


class App:
    """A trust registry: `start`, then `stop`. With port 0 in `address` it takes a free port (see `port`)."""

    def __init__(self, settings: TrustSettings, address: str, clock: Clock | None = None) -> None:
        self._settings = settings
        self._database = Database(settings.database_for("trust"), "trust")
        self._shared = SharedClock(self._database)
        clock = clock or self._shared
        self.heartbeats = Heartbeats(self._database, settings.heartbeat_flush_seconds)
        self._keys = Keys(self._database, clock)
        priors = SUGGESTED if settings.relation_priors else None
        self._cache = TrustCache(clock, settings.trust_parameters, settings.evidence_rule, priors)
        self._encountering = Encountering(DEFAULT_RULES)
        self._clock = clock
        self._questions = WhatIfService(SOLVERS, settings)
        self._server = Server(settings, address)
        self._server.add(
            trust_pb2_grpc.add_RegistryServicer_to_server,
            RegistryServicer(
                Owners(self._database, clock),
                Devices(self._database, clock, self.heartbeats, Inheritance(self._cache), self._encountering),
                Erasure(self._database, clock),
                self._keys,
                Auditing(self._database),
            ),
            _SERVICES["Registry"].full_name,
        )
        self._server.add(
            trust_pb2_grpc.add_LinksServicer_to_server,
            LinksServicer(Links(self._database, clock)),
            _SERVICES["Links"].full_name,
        )
        self._server.add(
            trust_pb2_grpc.add_TrustServicer_to_server,
            _social(self._database, clock, self._cache, self._encountering, self._questions),
            _SERVICES["Trust"].full_name,
        )
        self._beating: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.port

    async def start(self) -> None:
        """Migrate the database, make sure that an admin key exists, then serve."""
        await self._database.migrate("services.trust")
        await self._shared.start()
        await self._keys.bootstrap(self._settings.admin_key_path, required=self._settings.admin_key_file is not None)
        async with self._database.writing() as tx:
            await self._cache.prepare(tx)
            await self._encountering.prepare(tx, self._clock.now())
        self._beating = asyncio.create_task(self.heartbeats.run())
        await self._server.start()

    async def stop(self) -> None:
        """Finish open calls, write pending heartbeats and close the database."""
        await self._server.stop()
        await self._questions.close()
        if self._beating is not None:
            self._beating.cancel()
            with suppress(asyncio.CancelledError):
                await self._beating
        try:
            await self.heartbeats.flush()
        except Unavailable as error:
            _log.warning("the last heartbeats are lost", error=error.message)
        await self._shared.stop()
        await self._database.close()


def _social(
    database: Database, clock: Clock, cache: TrustCache, encountering: Encountering, questions: WhatIfService
) -> TrustServicer:
    directory = Directory()
    visibility = Visibility(database, clock, directory)
    recording = Recording(database, clock, directory, cache, encountering)
    return TrustServicer(
        recording=recording,
        scores=Scores(database, directory, cache, visibility),
        history=TrustHistory(database, clock, directory, cache, visibility),
        graphs=Graphs(database, directory, cache, visibility),
        relations=SocialRelations(database, clock, directory, visibility, encountering),
        imports=Imports(database, clock, recording),
        questions=questions,
    )

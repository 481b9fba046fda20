"""The aggregation server put together."""

from __future__ import annotations

from coterie_api.aggregation.v1 import aggregation_pb2, aggregation_pb2_grpc
from services.aggregation.rounds.census import Census
from services.aggregation.rounds.chairing import Chair
from services.aggregation.rounds.closing import Closer
from services.aggregation.rounds.conductor import ROUND, Conductor
from services.aggregation.rounds.desk import Desk
from services.aggregation.rounds.intake import Intake
from services.aggregation.rounds.leases import Leases
from services.aggregation.rounds.measuring import Measuring
from services.aggregation.rounds.newcomers import Newcomers
from services.aggregation.rounds.opening import Opener
from services.aggregation.rounds.settling import Settler
from services.aggregation.rounds.tending import Tending
from services.aggregation.rounds.totals import Totals
from services.aggregation.servicer.sums import SumsServicer
from services.aggregation.servicer.tasks import TasksServicer
from services.aggregation.servicer.work import WorkServicer
from services.aggregation.settings import AggregationSettings
from services.aggregation.store.library import Library
from services.aggregation.usecases.blobs import Sweeper
from services.aggregation.usecases.evaluations import EvaluationUseCases
from services.aggregation.usecases.history import HistoryUseCases
from services.aggregation.usecases.letters import LetterUseCases
from services.aggregation.usecases.measurements import MeasurementUseCases
from services.aggregation.usecases.models import ModelUseCases
from services.aggregation.usecases.pruning import Pruner
from services.aggregation.usecases.quota import Quota
from services.aggregation.usecases.sums import SumUseCases
from services.aggregation.usecases.tasks import TaskUseCases
from services.aggregation.usecases.work import WorkUseCases
from services.aggregation.whatif import SOLVERS
from services.kit.bell import Bell
from services.kit.blobs import BlobStore
from services.kit.chimes import Chimes
from services.kit.clock import Clock, SharedClock
from services.kit.database import Database
from services.kit.server import Server
from services.kit.service_clients import ServiceClients
from services.kit.whatif_service import WhatIfService

_SERVICES = aggregation_pb2.DESCRIPTOR.services_by_name


class App:
    """Everything the process holds, started and stopped together."""

    def __init__(self, settings: AggregationSettings, address: str, machine: Clock | None = None) -> None:
        self.database = Database(settings.database_for("aggregation"), "aggregation")
        bell, clock = Bell(), SharedClock(self.database, machine)
        self.clock = clock
        self.upstreams = ServiceClients.open(settings)
        library = Library(BlobStore.from_settings(settings))
        self.bell, self.chimes = bell, Chimes(self.database, bell, noted=ROUND)
        self.desk = Desk(self.database, bell)
        leases = Leases(self.database, clock, settings.replica)
        closer = Closer(self.database, library, clock, settings.replica, leases)
        chair = Chair(self.database, self.upstreams, library, self.desk, bell, clock)
        opener = Opener(self.database, self.upstreams, clock)
        self.conductor = Conductor(
            database=self.database,
            upstreams=self.upstreams,
            opener=opener,
            newcomers=Newcomers(self.database, opener, bell, clock),
            closer=closer,
            chair=chair,
            tending=Tending(opener, chair, leases, clock),
            measuring=Measuring(self.database, bell, clock),
            totals=Totals(self.database, library, closer, chair.resitting, clock),
            settler=Settler(self.database, self.upstreams, library.blobs, clock),
            bell=bell,
            clock=clock,
            replica=settings.replica,
            leases=leases,
            chimes=self.chimes,
        )
        intake = Intake(self.database, library, bell, self.chimes, clock, settings.replica)
        tasks = TaskUseCases(self.database, self.upstreams, self.conductor, library, bell, clock)
        history = HistoryUseCases(self.database, library, bell, clock)
        models = ModelUseCases(self.database, library, clock, settings.publisher_quota_bytes)
        evaluations = EvaluationUseCases(self.database, library, bell, clock)
        quota = Quota(self.database, self.conductor, settings.device_quota_bytes)
        work = WorkUseCases(self.database, self.conductor, intake, bell, self.chimes, clock, quota, self.desk)
        letters = LetterUseCases(self.database, self.conductor, intake, bell, self.chimes, clock, quota)
        measured = MeasurementUseCases(self.database, self.conductor, bell, clock)
        self.census = Census(self.database) if settings.metrics_port else None
        self.server = Server(settings, address)
        self.questions = WhatIfService(SOLVERS, settings)
        sweeper = Sweeper(self.database, self.upstreams, library.blobs, clock)
        pruner = Pruner(self.database, library.blobs, clock)
        answering = TasksServicer(tasks, history, models, evaluations, measured, sweeper, pruner, self.questions)
        self.server.add(aggregation_pb2_grpc.add_TasksServicer_to_server, answering, _SERVICES["Tasks"].full_name)
        self.server.add(
            aggregation_pb2_grpc.add_WorkServicer_to_server, WorkServicer(work, letters), _SERVICES["Work"].full_name
        )
        sums = SumsServicer(SumUseCases(self.database, self.desk, bell, clock))
        self.server.add(aggregation_pb2_grpc.add_SumsServicer_to_server, sums, _SERVICES["Sums"].full_name)

    async def start(self) -> None:
        """Migrates, answers, and takes up unfinished tasks."""
        await self.database.migrate("services.aggregation")
        await self.clock.start()
        await self.desk.start()
        await self.chimes.start()
        await self.server.start()
        await self.conductor.start()
        if self.census is not None:
            await self.census.start()

    async def stop(self) -> None:
        """Wakes long polls, lets open calls end, and closes everything."""
        self.bell.ring_all()
        await self.server.stop()
        await self.questions.close()
        await self.conductor.stop()
        if self.census is not None:
            await self.census.stop()
        await self.chimes.stop()
        await self.upstreams.close()
        await self.clock.stop()
        await self.database.close()

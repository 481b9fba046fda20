"""The aggregation server put together."""

from __future__ import annotations

from coterie_api.aggregation.v1 import aggregation_pb2, aggregation_pb2_grpc
from services.aggregation.rounds.closing import Closer
from services.aggregation.rounds.conductor import ROUND, Conductor
from services.aggregation.rounds.evaluation import Measuring
from services.aggregation.rounds.intake import Intake
from services.aggregation.rounds.late_joiners import LateJoiners
from services.aggregation.rounds.leases import Leases
from services.aggregation.rounds.opening import Opener
from services.aggregation.rounds.round_gauge import RoundGauge
from services.aggregation.rounds.round_monitor import RoundMonitor
from services.aggregation.rounds.round_registry import RoundRegistry
from services.aggregation.rounds.settling import Settler
from services.aggregation.secure_sums.coordinator import Coordinator
from services.aggregation.secure_sums.duty_index import DutyIndex
from services.aggregation.secure_sums.unmasking import Unmasking
from services.aggregation.servicer.sums import SumsServicer
from services.aggregation.servicer.tasks import TasksServicer
from services.aggregation.servicer.work import WorkServicer
from services.aggregation.settings import AggregationSettings
from services.aggregation.store.model_files import ModelFiles
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
from services.kit.database.blobs import BlobStore
from services.kit.database.engine import Database
from services.kit.notify.notifier import Notifier
from services.kit.notify.replica_notifier import ReplicaNotifier
from services.kit.rpc.server import Server
from services.kit.rpc.service_clients import ServiceClients
from services.kit.rpc.whatif_service import WhatIfService
from services.kit.runtime.clock import Clock, SharedClock

_SERVICES = aggregation_pb2.DESCRIPTOR.services_by_name


class App:
    """Everything the process holds, started and stopped together."""

    def __init__(self, settings: AggregationSettings, address: str, machine: Clock | None = None) -> None:
        self.database = Database(settings.database_for("aggregation"), "aggregation")
        notifier, clock = Notifier(), SharedClock(self.database, machine)
        self.clock = clock
        self.clients = ServiceClients.open(settings)
        model_files = ModelFiles(BlobStore.from_settings(settings))
        self.notifier, self.replica_notifier = notifier, ReplicaNotifier(self.database, notifier, noted=ROUND)
        self.duty_index = DutyIndex(self.database, notifier)
        leases = Leases(self.database, clock, settings.replica)
        closer = Closer(self.database, model_files, clock, settings.replica, leases)
        coordinator = Coordinator(self.database, self.clients, model_files, self.duty_index, notifier, clock)
        opener = Opener(self.database, self.clients, clock)
        measuring = Measuring(self.database, notifier, clock)
        late_joiners = LateJoiners(self.database, opener, notifier, clock)
        self.open_rounds = RoundRegistry(self.database, notifier, measuring, late_joiners, coordinator)
        self.conductor = Conductor(
            database=self.database,
            clients=self.clients,
            opener=opener,
            closer=closer,
            open_rounds=self.open_rounds,
            monitor=RoundMonitor(opener, coordinator, leases, clock),
            measuring=measuring,
            unmasking=Unmasking(self.database, model_files, closer, coordinator.retry, clock),
            settler=Settler(self.database, self.clients, model_files.blobs, clock),
            notifier=notifier,
            clock=clock,
            replica=settings.replica,
            leases=leases,
            replica_notifier=self.replica_notifier,
        )
        intake = Intake(self.database, model_files, notifier, self.replica_notifier, clock, settings.replica)
        tasks = TaskUseCases(self.database, self.clients, self.conductor, model_files, notifier, clock)
        history = HistoryUseCases(self.database, model_files, notifier, clock)
        models = ModelUseCases(self.database, model_files, clock, settings.publisher_quota_bytes)
        evaluations = EvaluationUseCases(self.database, model_files, notifier, clock)
        quota = Quota(self.database, self.open_rounds, settings.device_quota_bytes)
        work = WorkUseCases(
            self.database, self.open_rounds, intake, notifier, self.replica_notifier, clock, quota, self.duty_index
        )
        letters = LetterUseCases(self.database, self.open_rounds, intake, notifier, self.replica_notifier, clock, quota)
        measured = MeasurementUseCases(self.database, self.conductor, notifier, clock)
        self.round_gauge = RoundGauge(self.database) if settings.metrics_port else None
        self.server = Server(settings, address)
        self.questions = WhatIfService(SOLVERS, settings)
        sweeper = Sweeper(self.database, self.clients, model_files.blobs, clock)
        pruner = Pruner(self.database, model_files.blobs, clock)
        answering = TasksServicer(tasks, history, models, evaluations, measured, sweeper, pruner, self.questions)
        self.server.add(aggregation_pb2_grpc.add_TasksServicer_to_server, answering, _SERVICES["Tasks"].full_name)
        self.server.add(
            aggregation_pb2_grpc.add_WorkServicer_to_server, WorkServicer(work, letters), _SERVICES["Work"].full_name
        )
        sums = SumsServicer(SumUseCases(self.database, self.duty_index, notifier, clock))
        self.server.add(aggregation_pb2_grpc.add_SumsServicer_to_server, sums, _SERVICES["Sums"].full_name)

    async def start(self) -> None:
        """Migrates, answers, and takes up unfinished tasks."""
        await self.database.migrate("services.aggregation")
        await self.clock.start()
        await self.duty_index.start()
        await self.replica_notifier.start()
        await self.server.start()
        await self.conductor.start()
        if self.round_gauge is not None:
            await self.round_gauge.start()

    async def stop(self) -> None:
        """Wakes long polls, lets open calls end, and closes everything."""
        self.notifier.close()
        await self.server.stop()
        await self.questions.close()
        await self.conductor.stop()
        if self.round_gauge is not None:
            await self.round_gauge.stop()
        await self.replica_notifier.stop()
        await self.clients.close()
        await self.clock.stop()
        await self.database.close()

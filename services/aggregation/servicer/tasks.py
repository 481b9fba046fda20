"""The Tasks service on the wire."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from coterie.records.enums import TaskState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.aggregation.v1 import aggregation_pb2_grpc as rpc
from services.aggregation.servicer import messages
from services.aggregation.usecases.blobs import Sweeper
from services.aggregation.usecases.evaluations import EvaluationUseCases
from services.aggregation.usecases.history import HistoryUseCases
from services.aggregation.usecases.measurements import MeasurementUseCases
from services.aggregation.usecases.models import ModelUseCases
from services.aggregation.usecases.pruning import Pruner
from services.aggregation.usecases.tasks import TaskUseCases
from services.kit.rpc.enums import word
from services.kit.rpc.paging import NUMBER, next_cursor, page_size, read_page, within_bytes
from services.kit.rpc.whatif_service import WhatIfService

Context = Any
ID = r"[A-Za-z0-9_.:-]{1,128}"
LINE_AND_VERSION = rf"{NUMBER}:{NUMBER}"
"""Forms of cursors."""


class TasksServicer(rpc.TasksServicer):
    """For publishers and admins."""

    def __init__(
        self,
        tasks: TaskUseCases,
        history: HistoryUseCases,
        models: ModelUseCases,
        evaluations: EvaluationUseCases,
        measurements: MeasurementUseCases,
        sweeper: Sweeper,
        pruner: Pruner,
        questions: WhatIfService,
    ) -> None:
        self._tasks, self._history, self._models, self._questions = tasks, history, models, questions
        self._evaluations, self._measurements, self._sweeper, self._pruner = evaluations, measurements, sweeper, pruner

    async def CreateTask(self, request: pb.CreateTaskRequest, context: Context) -> pb.Task:
        return messages.task(await self._tasks.create(messages.specification_from(request.specification)))

    async def GetTask(self, request: pb.GetTaskRequest, context: Context) -> pb.Task:
        return messages.task(await self._tasks.get(request.task_id))

    async def ListTasks(self, request: pb.ListTasksRequest, context: Context) -> pb.ListTasksReply:
        page = read_page(request.limit, request.cursor, ID)
        result = await self._tasks.list_tasks(
            page, state=word(TaskState, request.state), publisher=request.publisher, name=request.name
        )
        whole = [messages.task(view) for view in result]
        fitting = within_bytes(whole, pb.Task.ByteSize)
        limit = page.limit if len(fitting) == len(whole) else len(fitting)
        cursor = next_cursor(fitting, limit, lambda task: task.id)
        return pb.ListTasksReply(tasks=fitting, next_cursor=cursor)

    async def StartTask(self, request: pb.StartTaskRequest, context: Context) -> pb.Task:
        return messages.task(await self._tasks.start(request.task_id))

    async def CancelTask(self, request: pb.CancelTaskRequest, context: Context) -> pb.Task:
        return messages.task(await self._tasks.cancel(request.task_id, request.why))

    async def Enrol(self, request: pb.EnrolRequest, context: Context) -> pb.Enrolment:
        claims = (request.samples, request.non_iid, request.clerks, request.no_clerk)
        enrolment = await self._tasks.enrol(
            request.task_id, request.device_id, *claims, measures=request.measures, better=request.better
        )
        return messages.enrolment(enrolment)

    async def Withdraw(self, request: pb.WithdrawRequest, context: Context) -> pb.Enrolment:
        return messages.enrolment(await self._tasks.withdraw(request.task_id, request.device_id))

    async def ListEnrolments(self, request: pb.ListEnrolmentsRequest, context: Context) -> pb.ListEnrolmentsReply:
        page = read_page(request.limit, request.cursor, ID)
        result = await self._tasks.list_enrolments(request.task_id, page)
        cursor = next_cursor(result, page.limit, lambda enrolment: enrolment.device_id)
        return pb.ListEnrolmentsReply(enrolments=map(messages.enrolment, result), next_cursor=cursor)

    async def ListRounds(self, request: pb.ListRoundsRequest, context: Context) -> pb.ListRoundsReply:
        page = read_page(request.limit, request.cursor, NUMBER)
        result = await self._history.list_rounds(request.task_id, page)
        cursor = next_cursor(result, page.limit, lambda view: str(view.round.number))
        return pb.ListRoundsReply(rounds=map(messages.round_, result), next_cursor=cursor)

    async def GetRound(self, request: pb.GetRoundRequest, context: Context) -> pb.RoundDetail:
        view, participations = await self._history.get_round(request.task_id, request.number)
        return pb.RoundDetail(round=messages.round_(view), participations=map(messages.participation, participations))

    async def ListParticipations(
        self, request: pb.ListParticipationsRequest, context: Context
    ) -> pb.ListParticipationsReply:
        page = read_page(request.limit, request.cursor, NUMBER)
        result = await self._history.list_participations(request.task_id, request.device_id, page)
        cursor = next_cursor(result, page.limit, lambda part: str(part.round))
        return pb.ListParticipationsReply(participations=map(messages.participation, result), next_cursor=cursor)

    async def ListEvents(self, request: pb.ListEventsRequest, context: Context) -> pb.ListEventsReply:
        result = await self._history.list_events(
            request.task_id,
            after=request.after,
            limit=page_size(request.limit),
            wait_seconds=request.wait_seconds,
        )
        return pb.ListEventsReply(events=map(messages.event, result))

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsReply:
        page = read_page(request.limit, request.cursor, LINE_AND_VERSION)
        result = await self._history.list_models(request.task_id, page)
        cursor = next_cursor(result, page.limit, lambda model: f"{model.line}:{model.version}")
        return pb.ListModelsReply(models=map(messages.model, result), next_cursor=cursor)

    async def ReplayTask(self, request: pb.ReplayTaskRequest, context: Context) -> pb.ReplayTaskReply:
        page = read_page(request.limit, request.cursor, NUMBER)
        result = await self._history.replay(request.task_id, page)
        cursor = next_cursor(result, page.limit, lambda replayed: str(replayed.round))
        return pb.ReplayTaskReply(rounds=map(messages.replayed_round, result), next_cursor=cursor)

    async def RegisterModel(self, request: pb.RegisterModelRequest, context: Context) -> pb.RegisterModelReply:
        size, layout = await self._models.register(request.digest)
        return pb.RegisterModelReply(
            digest=request.digest, size_bytes=size, tensors=len(layout.tensors), parameters=layout.elements
        )

    async def AdmitModel(self, request: pb.AdmitModelRequest, context: Context) -> pb.AdmitModelReply:
        return pb.AdmitModelReply(max_bytes=await self._models.admit(request.size_bytes))

    async def ForgetModel(self, request: pb.ForgetModelRequest, context: Context) -> pb.ForgetModelReply:
        await self._models.forget(request.digest)
        return pb.ForgetModelReply()

    async def PruneTasks(self, request: pb.PruneTasksRequest, context: Context) -> pb.PruneTasksReply:
        age, task_id = request.older_than_seconds, request.task_id
        return pb.PruneTasksReply(**asdict(await self._pruner.prune(age, task_id, dry_run=request.dry_run)))

    async def SweepBlobs(self, request: pb.SweepBlobsRequest, context: Context) -> pb.SweepBlobsReply:
        result = await self._sweeper.sweep(request.older_than_seconds, dry_run=request.dry_run)
        return pb.SweepBlobsReply(
            seen=result.seen,
            orphans=result.orphans,
            orphan_bytes=result.orphan_bytes,
            removed=result.removed,
            digests=result.names,
        )

    async def AuthoriseDownload(
        self, request: pb.AuthoriseDownloadRequest, context: Context
    ) -> pb.AuthoriseDownloadReply:
        authorise = self._models.authorise_letter if request.letter_id else self._models.authorise_download
        digest, size = await authorise(request.letter_id or request.digest)
        return pb.AuthoriseDownloadReply(digest=digest, size_bytes=size)

    async def GetEvaluation(self, request: pb.GetEvaluationRequest, context: Context) -> pb.Evaluation:
        return messages.evaluation(await self._evaluations.ask(request.task_id, request.wait_seconds))

    async def AnswerEvaluation(self, request: pb.AnswerEvaluationRequest, context: Context) -> pb.AnswerEvaluationReply:
        answered = (request.task_id, request.round, request.model_digest, request.worths)
        is_valued, known = await self._evaluations.answer(*answered)
        return pb.AnswerEvaluationReply(is_valued=is_valued, known=known)

    async def ListContributions(
        self, request: pb.ListContributionsRequest, context: Context
    ) -> pb.ListContributionsReply:
        page = read_page(request.limit, request.cursor, ID)
        result = await self._evaluations.list_contributions(request.task_id, request.round, page)
        cursor = next_cursor(result, page.limit, lambda item: item.device_id)
        return pb.ListContributionsReply(contributions=map(messages.contribution, result), next_cursor=cursor)

    async def ReportMeasurement(
        self, request: pb.ReportMeasurementRequest, context: Context
    ) -> pb.ReportMeasurementReply:
        place = (request.task_id, request.line, request.version)
        await self._measurements.tell(*place, dict(request.metrics), is_public=request.public_metrics)
        return pb.ReportMeasurementReply()

    async def ListMeasuredTasks(
        self, request: pb.ListMeasuredTasksRequest, context: Context
    ) -> pb.ListMeasuredTasksReply:
        result = await self._measurements.list_runs(list(request.task_ids))
        return pb.ListMeasuredTasksReply(tasks=map(messages.measured_task, result))

    async def ListMeasurements(self, request: pb.ListMeasurementsRequest, context: Context) -> pb.ListMeasurementsReply:
        page = read_page(request.limit, request.cursor, ID)
        result = await self._measurements.list_measurements(request.task_id, request.line, request.version, page)
        cursor = next_cursor(result, page.limit, lambda item: item.device_id)
        return pb.ListMeasurementsReply(measurements=map(messages.measurement, result), next_cursor=cursor)

    async def WhatIf(self, request: pb.WhatIfRequest, context: Context) -> pb.WhatIfReply:
        return pb.WhatIfReply(output_json=await self._questions.what_if(request.solver, request.input_json))

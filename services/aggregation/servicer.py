"""Proto in → use case → proto out."""

from __future__ import annotations

from typing import Any

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.aggregation.v1 import aggregation_pb2_grpc as rpc
from services.aggregation import convert
from services.aggregation.usecases.models import ModelUseCases
from services.aggregation.usecases.tasks import TaskUseCases
from services.aggregation.usecases.work import WorkUseCases
from services.kit.paging import next_cursor, page_size

Context = Any
RETRY_AFTER_SECONDS = 0.2


class TasksServicer(rpc.TasksServicer):
    """For publishers and admins."""

    def __init__(self, tasks: TaskUseCases, models: ModelUseCases) -> None:
        self._tasks, self._models = tasks, models

    async def CreateTask(self, request: pb.CreateTaskRequest, context: Context) -> pb.Task:
        return convert.task(await self._tasks.create(convert.specification_from(request.specification)))

    async def GetTask(self, request: pb.GetTaskRequest, context: Context) -> pb.Task:
        return convert.task(await self._tasks.get(request.task_id))

    async def ListTasks(self, request: pb.ListTasksRequest, context: Context) -> pb.ListTasksReply:
        limit = page_size(request.limit)
        found = await self._tasks.list_tasks(
            state=request.state, publisher=request.publisher, limit=limit, cursor=request.cursor
        )
        cursor = next_cursor(found, limit, lambda view: view.task.id)
        return pb.ListTasksReply(tasks=map(convert.task, found), next_cursor=cursor)

    async def StartTask(self, request: pb.StartTaskRequest, context: Context) -> pb.Task:
        return convert.task(await self._tasks.start(request.task_id))

    async def CancelTask(self, request: pb.CancelTaskRequest, context: Context) -> pb.Task:
        return convert.task(await self._tasks.cancel(request.task_id, request.why))

    async def Enrol(self, request: pb.EnrolRequest, context: Context) -> pb.Enrolment:
        enrolment = await self._tasks.enrol(request.task_id, request.device_id, request.samples, request.non_iid)
        return convert.enrolment(enrolment)

    async def Withdraw(self, request: pb.WithdrawRequest, context: Context) -> pb.Enrolment:
        return convert.enrolment(await self._tasks.withdraw(request.task_id, request.device_id))

    async def ListEnrolments(self, request: pb.ListEnrolmentsRequest, context: Context) -> pb.ListEnrolmentsReply:
        limit = page_size(request.limit)
        found = await self._tasks.list_enrolments(request.task_id, limit=limit, cursor=request.cursor)
        cursor = next_cursor(found, limit, lambda enrolment: enrolment.device_id)
        return pb.ListEnrolmentsReply(enrolments=map(convert.enrolment, found), next_cursor=cursor)

    async def ListRounds(self, request: pb.ListRoundsRequest, context: Context) -> pb.ListRoundsReply:
        limit = page_size(request.limit)
        found = await self._tasks.list_rounds(request.task_id, limit=limit, cursor=request.cursor)
        cursor = next_cursor(found, limit, lambda view: str(view.round.number))
        return pb.ListRoundsReply(rounds=map(convert.round_, found), next_cursor=cursor)

    async def GetRound(self, request: pb.GetRoundRequest, context: Context) -> pb.RoundDetail:
        view, everybody = await self._tasks.get_round(request.task_id, request.number)
        return pb.RoundDetail(round=convert.round_(view), participations=map(convert.participation, everybody))

    async def ListParticipations(
        self, request: pb.ListParticipationsRequest, context: Context
    ) -> pb.ListParticipationsReply:
        limit = page_size(request.limit)
        found = await self._tasks.list_participations(
            request.task_id, request.device_id, limit=limit, cursor=request.cursor
        )
        cursor = next_cursor(found, limit, lambda part: str(part.round))
        return pb.ListParticipationsReply(participations=map(convert.participation, found), next_cursor=cursor)

    async def ListEvents(self, request: pb.ListEventsRequest, context: Context) -> pb.ListEventsReply:
        found = await self._tasks.list_events(
            request.task_id,
            after=request.after,
            limit=page_size(request.limit),
            wait_seconds=request.wait_seconds,
        )
        return pb.ListEventsReply(events=map(convert.event, found))

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsReply:
        limit = page_size(request.limit)
        found = await self._tasks.list_models(request.task_id, limit=limit, cursor=request.cursor)
        cursor = next_cursor(found, limit, lambda model: f"{model.line}:{model.version}")
        return pb.ListModelsReply(models=map(convert.model, found), next_cursor=cursor)

    async def RegisterModel(self, request: pb.RegisterModelRequest, context: Context) -> pb.RegisterModelReply:
        size, layout = await self._models.register(request.digest)
        return pb.RegisterModelReply(
            digest=request.digest, size_bytes=size, tensors=len(layout.tensors), parameters=layout.elements
        )

    async def AuthoriseDownload(
        self, request: pb.AuthoriseDownloadRequest, context: Context
    ) -> pb.AuthoriseDownloadReply:
        authorise = self._models.authorise_letter if request.letter_id else self._models.authorise_download
        digest, size = await authorise(request.letter_id or request.digest)
        return pb.AuthoriseDownloadReply(digest=digest, size_bytes=size)


class WorkServicer(rpc.WorkServicer):
    """For devices."""

    def __init__(self, work: WorkUseCases) -> None:
        self._work = work

    async def GetWork(self, request: pb.GetWorkRequest, context: Context) -> pb.GetWorkReply:
        items, ended = await self._work.get_work(request.device_id, request.wait_seconds, request.task_ids)
        return pb.GetWorkReply(items=items, retry_after_seconds=0.0 if items else RETRY_AFTER_SECONDS, ended=ended)

    async def AdmitUpdate(self, request: pb.AdmitUpdateRequest, context: Context) -> pb.AdmitUpdateReply:
        most, stored = await self._work.admit(
            request.task_id, request.round, request.device_id, request.digest, request.size_bytes
        )
        return pb.AdmitUpdateReply(max_bytes=most, stored=stored)

    async def SubmitUpdate(self, request: pb.SubmitUpdateRequest, context: Context) -> pb.SubmitUpdateReply:
        outcome, number = await self._work.submit(convert.delivery_from(request))
        return pb.SubmitUpdateReply(outcome=outcome, round=number)

    async def DeclineWork(self, request: pb.DeclineWorkRequest, context: Context) -> pb.DeclineWorkReply:
        await self._work.decline(request.task_id, request.round, request.device_id, request.why)
        return pb.DeclineWorkReply()

    async def SendLetter(self, request: pb.SendLetterRequest, context: Context) -> pb.Letter:
        return convert.letter(await self._work.send_letter(convert.letter_from(request.letter)))

    async def ListLetters(self, request: pb.ListLettersRequest, context: Context) -> pb.ListLettersReply:
        letters, state, gone = await self._work.list_letters(
            request.task_id, request.round, request.device_id, request.known, request.wait_seconds
        )
        return pb.ListLettersReply(letters=map(convert.letter, letters), round_state=state, gone=gone)

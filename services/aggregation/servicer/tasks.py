"""The Tasks service on the wire."""

from __future__ import annotations

from typing import Any

from coterie.records.words import TaskState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.aggregation.v1 import aggregation_pb2_grpc as rpc
from services.aggregation.servicer import messages
from services.aggregation.usecases.models import ModelUseCases
from services.aggregation.usecases.questions import Questions
from services.aggregation.usecases.tasks import TaskUseCases
from services.kit.paging import NUMBER, next_cursor, page_size, read_page, within_bytes
from services.kit.words import word

Context = Any
ID = r"[A-Za-z0-9_.:-]{1,128}"
LINE_AND_VERSION = rf"{NUMBER}:{NUMBER}"
"""Forms of cursors."""


class TasksServicer(rpc.TasksServicer):
    """For publishers and admins."""

    def __init__(self, tasks: TaskUseCases, models: ModelUseCases, questions: Questions) -> None:
        self._tasks, self._models, self._questions = tasks, models, questions

    async def CreateTask(self, request: pb.CreateTaskRequest, context: Context) -> pb.Task:
        return messages.task(await self._tasks.create(messages.specification_from(request.specification)))

    async def GetTask(self, request: pb.GetTaskRequest, context: Context) -> pb.Task:
        return messages.task(await self._tasks.get(request.task_id))

    async def ListTasks(self, request: pb.ListTasksRequest, context: Context) -> pb.ListTasksReply:
        page = read_page(request.limit, request.cursor, ID)
        found = await self._tasks.list_tasks(page, state=word(TaskState, request.state), publisher=request.publisher)
        whole = [messages.task(view) for view in found]
        told = within_bytes(whole, pb.Task.ByteSize)
        cursor = next_cursor(told, page.limit if len(told) == len(whole) else len(told), lambda task: task.id)
        return pb.ListTasksReply(tasks=told, next_cursor=cursor)

    async def StartTask(self, request: pb.StartTaskRequest, context: Context) -> pb.Task:
        return messages.task(await self._tasks.start(request.task_id))

    async def CancelTask(self, request: pb.CancelTaskRequest, context: Context) -> pb.Task:
        return messages.task(await self._tasks.cancel(request.task_id, request.why))

    async def Enrol(self, request: pb.EnrolRequest, context: Context) -> pb.Enrolment:
        enrolment = await self._tasks.enrol(request.task_id, request.device_id, request.samples, request.non_iid)
        return messages.enrolment(enrolment)

    async def Withdraw(self, request: pb.WithdrawRequest, context: Context) -> pb.Enrolment:
        return messages.enrolment(await self._tasks.withdraw(request.task_id, request.device_id))

    async def ListEnrolments(self, request: pb.ListEnrolmentsRequest, context: Context) -> pb.ListEnrolmentsReply:
        page = read_page(request.limit, request.cursor, ID)
        found = await self._tasks.list_enrolments(request.task_id, page)
        cursor = next_cursor(found, page.limit, lambda enrolment: enrolment.device_id)
        return pb.ListEnrolmentsReply(enrolments=map(messages.enrolment, found), next_cursor=cursor)

    async def ListRounds(self, request: pb.ListRoundsRequest, context: Context) -> pb.ListRoundsReply:
        page = read_page(request.limit, request.cursor, NUMBER)
        found = await self._tasks.list_rounds(request.task_id, page)
        cursor = next_cursor(found, page.limit, lambda view: str(view.round.number))
        return pb.ListRoundsReply(rounds=map(messages.round_, found), next_cursor=cursor)

    async def GetRound(self, request: pb.GetRoundRequest, context: Context) -> pb.RoundDetail:
        view, everybody = await self._tasks.get_round(request.task_id, request.number)
        return pb.RoundDetail(round=messages.round_(view), participations=map(messages.participation, everybody))

    async def ListParticipations(
        self, request: pb.ListParticipationsRequest, context: Context
    ) -> pb.ListParticipationsReply:
        page = read_page(request.limit, request.cursor, NUMBER)
        found = await self._tasks.list_participations(request.task_id, request.device_id, page)
        cursor = next_cursor(found, page.limit, lambda part: str(part.round))
        return pb.ListParticipationsReply(participations=map(messages.participation, found), next_cursor=cursor)

    async def ListEvents(self, request: pb.ListEventsRequest, context: Context) -> pb.ListEventsReply:
        found = await self._tasks.list_events(
            request.task_id,
            after=request.after,
            limit=page_size(request.limit),
            wait_seconds=request.wait_seconds,
        )
        return pb.ListEventsReply(events=map(messages.event, found))

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsReply:
        page = read_page(request.limit, request.cursor, LINE_AND_VERSION)
        found = await self._tasks.list_models(request.task_id, page)
        cursor = next_cursor(found, page.limit, lambda model: f"{model.line}:{model.version}")
        return pb.ListModelsReply(models=map(messages.model, found), next_cursor=cursor)

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

    async def WhatIf(self, request: pb.WhatIfRequest, context: Context) -> pb.WhatIfReply:
        return pb.WhatIfReply(output_json=await self._questions.what_if(request.solver, request.input_json))

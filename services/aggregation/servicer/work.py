"""The Work service on the wire."""

from __future__ import annotations

from typing import Any

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.aggregation.v1 import aggregation_pb2_grpc as rpc
from services.aggregation.servicer import messages
from services.aggregation.usecases.letters import LetterUseCases
from services.aggregation.usecases.work import WorkUseCases
from services.kit.rpc.enums import number

Context = Any
RETRY_AFTER_SECONDS = 0.2


class WorkServicer(rpc.WorkServicer):
    """For devices."""

    def __init__(self, work: WorkUseCases, letters: LetterUseCases) -> None:
        self._work, self._letters = work, letters

    async def GetWork(self, request: pb.GetWorkRequest, context: Context) -> pb.GetWorkReply:
        items, ended = await self._work.get_work(
            request.device_id, request.wait_seconds, request.task_ids, clerk=request.clerk
        )
        return pb.GetWorkReply(
            items=items,
            retry_after_seconds=0.0 if items else RETRY_AFTER_SECONDS,
            ended={task_id: number(state) for task_id, state in ended.items()},
            duties=self._work.is_called(request.device_id),
        )

    async def AdmitUpdate(self, request: pb.AdmitUpdateRequest, context: Context) -> pb.AdmitUpdateReply:
        most, stored = await self._work.admit(
            request.task_id, request.round, request.device_id, request.digest, request.size_bytes
        )
        return pb.AdmitUpdateReply(max_bytes=most, stored=stored)

    async def SubmitUpdate(self, request: pb.SubmitUpdateRequest, context: Context) -> pb.SubmitUpdateReply:
        outcome, present = await self._work.submit(messages.delivery_from(request))
        return pb.SubmitUpdateReply(outcome=number(outcome), round=present)

    async def DeclineWork(self, request: pb.DeclineWorkRequest, context: Context) -> pb.DeclineWorkReply:
        place = (request.task_id, request.round, request.device_id)
        await self._work.decline(*place, request.why, request.strangers, request.terms)
        return pb.DeclineWorkReply()

    async def ObjectToVerdict(self, request: pb.ObjectToVerdictRequest, context: Context) -> pb.ObjectToVerdictReply:
        await self._work.object(request.task_id, request.round, request.device_id, request.why)
        return pb.ObjectToVerdictReply()

    async def SendLetter(self, request: pb.SendLetterRequest, context: Context) -> pb.Letter:
        return messages.letter(await self._letters.send(messages.letter_from(request.letter)))

    async def AdmitLetter(self, request: pb.SendLetterRequest, context: Context) -> pb.AdmitUpdateReply:
        most = await self._letters.admit(messages.letter_from(request.letter))
        return pb.AdmitUpdateReply(max_bytes=most)

    async def ListLetters(self, request: pb.ListLettersRequest, context: Context) -> pb.ListLettersReply:
        letters, state, gone = await self._letters.list_letters(
            request.task_id, request.round, request.device_id, request.known, request.wait_seconds, request.plan_version
        )
        return pb.ListLettersReply(letters=map(messages.letter, letters), round_state=number(state), gone=gone)

    async def ForgetLetters(self, request: pb.ForgetLettersRequest, context: Context) -> pb.ForgetLettersReply:
        return pb.ForgetLettersReply(letters=await self._letters.forget(request.device_id))

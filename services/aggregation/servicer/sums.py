"""The Sums service on the wire."""

from __future__ import annotations

from typing import Any

from coterie.records.enums import SumDocument
from coterie.secure_sums.terms import Place
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.aggregation.v1 import aggregation_pb2_grpc as rpc
from services.aggregation.usecases.sums import SumUseCases
from services.kit.rpc.enums import number, word

Context = Any


class SumsServicer(rpc.SumsServicer):
    """For devices in secure sums, and their clerks."""

    def __init__(self, sums: SumUseCases) -> None:
        self._sums = sums

    async def ListDuties(self, request: pb.ListDutiesRequest, context: Context) -> pb.ListDutiesReply:
        result = await self._sums.list_duties(request.device_id, request.wait_seconds)
        return pb.ListDutiesReply(
            duties=[
                pb.Duty(
                    kind=number(kind),
                    task_id=session.task_id,
                    round=session.round,
                    session_number=session.session_number,
                    cohort=session.cohort,
                    deadline_at=session.deadline_at,
                )
                for kind, session in result
            ]
        )

    async def PutKeyOffer(self, request: pb.PutKeyOfferRequest, context: Context) -> pb.SumTaken:
        await self._sums.offer_key(_place(request.place), request.device_id, request.session_key, request.signature)
        return pb.SumTaken()

    async def ReadSum(self, request: pb.ReadSumRequest, context: Context) -> pb.SumText:
        document = word(SumDocument, request.document)
        return pb.SumText(text=await self._sums.read(_place(request.place), request.device_id, document))

    async def ListSumLetters(self, request: pb.SumReader, context: Context) -> pb.ListSumLettersReply:
        result = await self._sums.list_letters(_place(request.place), request.device_id)
        return pb.ListSumLettersReply(
            letters=[
                pb.SumLetter(device_id=device, digest=digest, start=start, length=length)
                for device, digest, start, length in result
            ]
        )

    async def PutReadyCheck(self, request: pb.PutReadyCheckRequest, context: Context) -> pb.SumTaken:
        place, faults = _place(request.place), dict(request.faults)
        await self._sums.ready_check(place, request.device_id, request.candidates, request.ready, faults)
        return pb.SumTaken()

    async def GetSurvivors(self, request: pb.SumReader, context: Context) -> pb.Survivors:
        session = await self._sums.survivors(_place(request.place), request.device_id)
        listed = [pb.Survivor(device_id=device, root=root.hex()) for device, root in session.surviving]
        return pb.Survivors(survivors=listed, digest=session.digest)

    async def PutCommit(self, request: pb.PutCommitRequest, context: Context) -> pb.SumTaken:
        await self._sums.commit(_place(request.place), request.device_id, request.digest, request.signature)
        return pb.SumTaken()

    async def GetCommits(self, request: pb.SumReader, context: Context) -> pb.Commits:
        return pb.Commits(signatures=await self._sums.commits(_place(request.place), request.device_id))

    async def PutAnswer(self, request: pb.PutAnswerRequest, context: Context) -> pb.PutAnswerReply:
        place, digests = _place(request.place), dict(request.digests)
        wanted = await self._sums.answer(place, request.device_id, request.digest, digests, request.signature)
        return pb.PutAnswerReply(wanted=wanted)

    async def AdmitShare(self, request: pb.ShareRequest, context: Context) -> pb.AdmitShareReply:
        size, stored = await self._sums.admit_share(
            _place(request.place), request.device_id, request.share, request.digest
        )
        return pb.AdmitShareReply(size_bytes=size, stored=stored)

    async def PutShare(self, request: pb.ShareRequest, context: Context) -> pb.SumTaken:
        await self._sums.take_share(_place(request.place), request.device_id, request.share, request.digest)
        return pb.SumTaken()


def _place(message: pb.SumPlace) -> Place:
    return Place(message.task_id, cohort=message.cohort, round=message.round, session_number=message.session_number)

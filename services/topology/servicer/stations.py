"""What base stations call: proto in → use case → proto out."""

from __future__ import annotations

from typing import Any

from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.topology.v1 import topology_pb2_grpc as rpc
from services.topology.usecases.stations import Stations

Context = Any


class StationsServicer(rpc.StationsServicer):
    """Cells taken, questions answered."""

    def __init__(self, stations: Stations) -> None:
        self._stations = stations

    async def TakeCell(self, request: pb.TakeCellRequest, context: Context) -> pb.TakenCell:
        return await self._stations.take_cell(request.cell_id)

    async def LeaveCell(self, request: pb.StationKey, context: Context) -> pb.LeaveCellReply:
        await self._stations.leave(request)
        return pb.LeaveCellReply()

    async def NextQuestion(self, request: pb.NextQuestionRequest, context: Context) -> pb.StationQuestion:
        return await self._stations.next_question(request.key, request.wait_seconds)

    async def Decide(self, request: pb.StationDecision, context: Context) -> pb.DecideReply:
        await self._stations.decide(request)
        return pb.DecideReply()

"""Proto in → use case → proto out."""

from __future__ import annotations

from typing import Any

from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.topology.v1 import topology_pb2_grpc as rpc
from services.kit.rpc.parameters import from_struct, to_struct
from services.kit.rpc.whatif_service import WhatIfService
from services.topology.domain.records import MeasuredWay
from services.topology.usecases.cells import RegisteredCells
from services.topology.usecases.committees import Committees
from services.topology.usecases.links import Links
from services.topology.usecases.plans import Plans
from services.topology.usecases.policies import Policies

Context = Any


class TopologyServicer(rpc.TopologyServicer):
    """Plans of tasks."""

    def __init__(
        self,
        plans: Plans,
        links: Links,
        cells: RegisteredCells,
        policies: Policies,
        committees: Committees,
        questions: WhatIfService,
    ) -> None:
        self._plans, self._links, self._cells, self._policies = plans, links, cells, policies
        self._committees, self._questions = committees, questions

    async def MakePlan(self, request: pb.MakePlanRequest, context: Context) -> pb.Plan:
        return await self._plans.make(request)

    async def GetPlan(self, request: pb.GetPlanRequest, context: Context) -> pb.Plan:
        return await self._plans.get(request.task_id, request.version)

    async def CheckParameters(self, request: pb.CheckParametersRequest, context: Context) -> pb.CheckParametersReply:
        checked = await self._plans.check_parameters(request.topology, request.privacy, from_struct(request.parameters))
        return pb.CheckParametersReply(parameters=to_struct(checked))

    async def PutCell(self, request: pb.Cell, context: Context) -> pb.Cell:
        return await self._cells.put(request)

    async def ListCells(self, request: pb.ListCellsRequest, context: Context) -> pb.ListCellsReply:
        return pb.ListCellsReply(cells=await self._cells.list())

    async def RemoveCell(self, request: pb.RemoveCellRequest, context: Context) -> pb.RemoveCellReply:
        await self._cells.remove(request.cell_id)
        return pb.RemoveCellReply()

    async def TrainPolicy(self, request: pb.TrainPolicyRequest, context: Context) -> pb.Policy:
        return await self._policies.train(request)

    async def ListPolicies(self, request: pb.ListPoliciesRequest, context: Context) -> pb.ListPoliciesReply:
        return pb.ListPoliciesReply(policies=await self._policies.list())

    async def ChooseClerks(self, request: pb.ChooseClerksRequest, context: Context) -> pb.Committee:
        return await self._committees.choose(request)

    async def ReportLinks(self, request: pb.ReportLinksRequest, context: Context) -> pb.ReportLinksReply:
        links = [
            (link.device_a, link.device_b, MeasuredWay(link.seconds, link.round_trip_seconds, link.bytes_per_second))
            for link in request.links
        ]
        await self._links.report(request.task_id, links)
        return pb.ReportLinksReply()

    async def ListBlobs(self, request: pb.ListBlobsRequest, context: Context) -> pb.ListBlobsReply:
        return pb.ListBlobsReply(digests=await self._policies.blobs())

    async def WhatIf(self, request: pb.WhatIfRequest, context: Context) -> pb.WhatIfReply:
        return pb.WhatIfReply(output_json=await self._questions.what_if(request.solver, request.input_json))

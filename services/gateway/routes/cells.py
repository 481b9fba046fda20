"""Base stations and the policies that schedule their blocks."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from starlette.responses import Response

from coterie.records import Cell, Items, Policy
from coterie_api.topology.v1 import topology_pb2
from services.gateway.errors import UnknownCell
from services.gateway.routes.base import Platform, router_for
from services.gateway.schemas.tasks import CellChange, NewPolicy
from services.gateway.wire.convert import to_json, to_proto
from services.gateway.wire.responses import JsonResponse, message_response

CellId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.:-]{1,64}$", description="Cell's id.", examples=["roof-north"])]
router = router_for("cells")


@router.get("/v1/cells", response_model=Items[Cell], summary="List base stations")
async def list_cells(platform: Platform) -> JsonResponse:
    """In order of id."""
    reply = await platform.topology.ListCells(topology_pb2.ListCellsRequest())
    return JsonResponse({"items": [to_json(cell) for cell in reply.cells]})


@router.get("/v1/cells/{cell_id}", response_model=Cell, summary="One base station")
async def get_cell(cell_id: CellId, platform: Platform) -> JsonResponse:
    """Its position and radio capacity."""
    reply = await platform.topology.ListCells(topology_pb2.ListCellsRequest())
    for cell in reply.cells:
        if cell.id == cell_id:
            return message_response(cell)
    raise UnknownCell(f"no base station {cell_id}; GET /v1/cells lists all")


@router.put("/v1/cells/{cell_id}", response_model=Cell, summary="Register or change a base station")
async def put_cell(cell_id: CellId, body: CellChange, platform: Platform) -> JsonResponse:
    """The body replaces the base station."""
    return message_response(await platform.topology.PutCell(to_proto(topology_pb2.Cell, body, id=cell_id)))


@router.delete("/v1/cells/{cell_id}", status_code=204, response_class=Response, summary="Remove a base station")
async def remove_cell(cell_id: CellId, platform: Platform) -> Response:
    """Later plans do not use it."""
    await platform.topology.RemoveCell(topology_pb2.RemoveCellRequest(cell_id=cell_id))
    return Response(status_code=204)


@router.get("/v1/policies", response_model=Items[Policy], summary="List scheduling policies")
async def list_policies(platform: Platform) -> JsonResponse:
    """Newest first."""
    reply = await platform.topology.ListPolicies(topology_pb2.ListPoliciesRequest())
    return JsonResponse({"items": [to_json(policy) for policy in reply.policies]})


@router.post("/v1/policies", status_code=202, response_model=Policy, summary="Train a scheduling policy")
async def train_policy(body: NewPolicy, platform: Platform) -> JsonResponse:
    """For the current cells, in the background; `progress` shows how far it is."""
    return message_response(await platform.topology.TrainPolicy(to_proto(topology_pb2.TrainPolicyRequest, body)), 202)

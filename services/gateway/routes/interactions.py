"""Interactions between devices."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from coterie.records import Interaction, Page, Recorded
from coterie_api.trust.v1 import trust_pb2
from services.gateway.routes.base import Platform, router_for
from services.gateway.schemas.base import ID_PATTERN, Cursor, IdFilter, Limit
from services.gateway.schemas.social import NewInteractions
from services.gateway.wire.convert import page, to_proto
from services.gateway.wire.responses import JsonResponse, message_response

router = router_for("interactions")


@router.post("/v1/interactions", response_model=Recorded, summary="Record interactions")
async def record_interactions(body: NewInteractions, platform: Platform) -> JsonResponse:
    """Idempotent by interaction id; a batch with an invalid item is refused as a whole. A device reports its own
    interactions."""
    request = to_proto(trust_pb2.RecordInteractionsRequest, body)
    return message_response(await platform.trust.RecordInteractions(request))


@router.get("/v1/interactions", response_model=Page[Interaction], summary="List interactions")
async def list_interactions(
    platform: Platform,
    device_a: Annotated[str, Query(pattern=ID_PATTERN, description="A device.")],
    device_b: IdFilter = "",
    limit: Limit = 100,
    cursor: Cursor = "",
) -> JsonResponse:
    """Of one device, or of a pair if both are given; newest first."""
    request = trust_pb2.ListInteractionsRequest(device_a=device_a, device_b=device_b, limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.trust.ListInteractions(request), "interactions"))

"""Owners and the enrolment tokens of their devices."""

from __future__ import annotations

from coterie.records import Owner, Page, Token
from coterie_api.trust.v1 import trust_pb2
from services.gateway.access.ownership import require_own_owner
from services.gateway.routes.base import Platform, router_for
from services.gateway.schemas.base import Cursor, Limit, OwnerId
from services.gateway.schemas.identity import NewOwner, NewToken, OwnerChange
from services.gateway.wire.convert import page, to_proto
from services.gateway.wire.responses import JsonResponse, message_response

router = router_for("owners")


@router.post("/v1/owners", status_code=201, response_model=Owner, summary="Create an owner")
async def create_owner(body: NewOwner, platform: Platform) -> JsonResponse:
    """Idempotent by name: the same name returns the existing owner."""
    return message_response(await platform.registry.CreateOwner(to_proto(trust_pb2.CreateOwnerRequest, body)), 201)


@router.get("/v1/owners", response_model=Page[Owner], summary="List owners")
async def list_owners(platform: Platform, limit: Limit = 100, cursor: Cursor = "") -> JsonResponse:
    """Owners in order of id."""
    request = trust_pb2.ListOwnersRequest(limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.registry.ListOwners(request), "owners"))


@router.get("/v1/owners/{owner_id}", response_model=Owner, summary="One owner")
async def get_owner(owner_id: OwnerId, platform: Platform) -> JsonResponse:
    """A device sees its own owner."""
    require_own_owner(owner_id)
    return message_response(await platform.registry.GetOwner(trust_pb2.GetOwnerRequest(owner_id=owner_id)))


@router.patch("/v1/owners/{owner_id}", response_model=Owner, summary="Change an owner's sharing")
async def update_owner(owner_id: OwnerId, body: OwnerChange, platform: Platform) -> JsonResponse:
    """Sets who may see the ties of its devices."""
    request = to_proto(trust_pb2.UpdateOwnerRequest, body, owner_id=owner_id)
    return message_response(await platform.registry.UpdateOwner(request))


@router.post("/v1/owners/{owner_id}/tokens", status_code=201, response_model=Token, summary="Issue an enrolment token")
async def issue_token(owner_id: OwnerId, body: NewToken, platform: Platform) -> JsonResponse:
    """Devices of this owner register with it. Only this response shows the secret."""
    request = to_proto(trust_pb2.IssueTokenRequest, body, owner_id=owner_id)
    return message_response(await platform.registry.IssueToken(request), 201)

"""Owners and the enrolment tokens their devices register with."""

from __future__ import annotations

from coterie.records import Owner, Page, Token
from coterie_api.trust.v1 import trust_pb2
from services.gateway.access.ownership import demand_own_owner
from services.gateway.routes.base import Platform, routes_for
from services.gateway.schemas.base import Cursor, Limit, OwnerId
from services.gateway.schemas.identity import NewOwner, NewToken, OwnerChange
from services.gateway.wire.answers import Json, answer
from services.gateway.wire.convert import page, to_proto

routes = routes_for("owners")


@routes.post("/v1/owners", status_code=201, response_model=Owner, summary="Create an owner")
async def create_owner(body: NewOwner, platform: Platform) -> Json:
    """Idempotent by name: the same name returns the owner that exists."""
    return answer(await platform.registry.CreateOwner(to_proto(trust_pb2.CreateOwnerRequest, body)), 201)


@routes.get("/v1/owners", response_model=Page[Owner], summary="List owners")
async def list_owners(platform: Platform, limit: Limit = 100, cursor: Cursor = "") -> Json:
    """Owners in order of id."""
    request = trust_pb2.ListOwnersRequest(limit=limit, cursor=cursor)
    return Json(page(await platform.registry.ListOwners(request), "owners"))


@routes.get("/v1/owners/{owner_id}", response_model=Owner, summary="One owner")
async def get_owner(owner_id: OwnerId, platform: Platform) -> Json:
    """A device sees its own owner."""
    demand_own_owner(owner_id)
    return answer(await platform.registry.GetOwner(trust_pb2.GetOwnerRequest(owner_id=owner_id)))


@routes.patch("/v1/owners/{owner_id}", response_model=Owner, summary="Change what an owner shares")
async def update_owner(owner_id: OwnerId, body: OwnerChange, platform: Platform) -> Json:
    """What others may see of its devices' ties."""
    request = to_proto(trust_pb2.UpdateOwnerRequest, body, owner_id=owner_id)
    return answer(await platform.registry.UpdateOwner(request))


@routes.post("/v1/owners/{owner_id}/tokens", status_code=201, response_model=Token, summary="Issue an enrolment token")
async def issue_token(owner_id: OwnerId, body: NewToken, platform: Platform) -> Json:
    """With it, devices of this owner may register. The secret is shown this once."""
    request = to_proto(trust_pb2.IssueTokenRequest, body, owner_id=owner_id)
    return answer(await platform.registry.IssueToken(request), 201)

"""API keys of admins and publishers."""

from __future__ import annotations

from starlette.responses import Response

from coterie.records import ApiKey
from coterie_api.trust.v1 import trust_pb2
from services.gateway.routes.base import Gateway, Platform, routes_for
from services.gateway.schemas.base import AnyId
from services.gateway.schemas.identity import NewApiKey
from services.gateway.wire.answers import Json, answer
from services.gateway.wire.convert import to_proto

routes = routes_for("keys")


@routes.post("/v1/keys", status_code=201, response_model=ApiKey, summary="Create an API key")
async def create_key(body: NewApiKey, platform: Platform) -> Json:
    """For an admin or a publisher. The secret is shown this once."""
    return answer(await platform.registry.CreateKey(to_proto(trust_pb2.CreateKeyRequest, body)), 201)


@routes.delete("/v1/keys/{key_id}", status_code=204, response_class=Response, summary="Revoke an API key")
async def revoke_key(key_id: AnyId, gateway: Gateway) -> Response:
    """It stops working at once here, and within seconds at other gateways."""
    await gateway.platform.registry.RevokeKey(trust_pb2.RevokeKeyRequest(key_id=key_id))
    gateway.door.forget(key_id=key_id)
    return Response(status_code=204)

"""API keys of admins and publishers."""

from __future__ import annotations

from starlette.responses import Response

from coterie.records import ApiKey, KeyInfo, Page
from coterie_api.trust.v1 import trust_pb2
from services.gateway.routes.base import Gateway, Platform, router_for
from services.gateway.schemas.base import AnyId, Cursor, Limit
from services.gateway.schemas.identity import NewApiKey, Rotation
from services.gateway.wire.convert import page, to_proto
from services.gateway.wire.responses import JsonResponse, message_response

router = router_for("keys")


@router.post("/v1/keys", status_code=201, response_model=ApiKey, summary="Create an API key")
async def create_key(body: NewApiKey, platform: Platform) -> JsonResponse:
    """For an admin or a publisher. Only this response shows the secret."""
    return message_response(await platform.registry.CreateKey(to_proto(trust_pb2.CreateKeyRequest, body)), 201)


@router.get("/v1/keys", response_model=Page[KeyInfo], summary="List API keys")
async def list_keys(platform: Platform, limit: Limit = 100, cursor: Cursor = "") -> JsonResponse:
    """Of admins and publishers, expired and revoked keys included; never their secrets."""
    return JsonResponse(
        page(await platform.registry.ListKeys(trust_pb2.ListKeysRequest(limit=limit, cursor=cursor)), "keys")
    )


@router.post("/v1/keys/{key_id}/rotation", status_code=201, response_model=ApiKey, summary="Rotate an API key")
async def rotate_key(key_id: AnyId, body: Rotation, platform: Platform) -> JsonResponse:
    """Creates a new key for the same holder; only this response shows it. The old key works for `grace_seconds` more.
    An admin may rotate any key, a publisher its own."""
    return message_response(
        await platform.registry.RotateKey(to_proto(trust_pb2.RotateKeyRequest, body, key_id=key_id)), 201
    )


@router.delete("/v1/keys/{key_id}", status_code=204, response_class=Response, summary="Revoke an API key")
async def revoke_key(key_id: AnyId, gateway: Gateway) -> Response:
    """It stops working at once here, and within seconds at other gateways."""
    await gateway.platform.registry.RevokeKey(trust_pb2.RevokeKeyRequest(key_id=key_id))
    gateway.authenticator.forget(key_id=key_id)
    return Response(status_code=204)

"""Devices: registration, profile, heartbeat, keys, revocation."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from coterie.records import Device, KnownKeys, Page, RegisteredDevice
from coterie_api.aggregation.v1 import aggregation_pb2
from coterie_api.trust.v1 import trust_pb2
from services.gateway.access.authenticator import address_of
from services.gateway.access.ownership import require_own_device
from services.gateway.routes.base import Gateway, Platform, router_for
from services.gateway.schemas.base import Cursor, DeviceId, IdFilter, Limit, WordFilter
from services.gateway.schemas.identity import DeviceChange, NewDevice, NewKeys, Revocation
from services.gateway.wire.convert import page, to_json, to_proto
from services.gateway.wire.responses import JsonResponse, message_response
from services.kit.rpc.principal import SERVICE, acting_as

router = router_for("devices")


@router.post(
    "/v1/devices/{device_id}/heartbeat",
    status_code=204,
    response_class=Response,
    summary="Report that a device is alive",
)
async def heartbeat(device_id: DeviceId, gateway: Gateway) -> Response:
    """Concurrent heartbeats share one call to the registry."""
    require_own_device(device_id)
    await gateway.heartbeats.beat(device_id)
    return Response(status_code=204)


@router.post("/v1/devices", status_code=201, response_model=RegisteredDevice, summary="Register a device")
async def register_device(request: Request, body: NewDevice, gateway: Gateway) -> JsonResponse:
    """Needs no API key: the enrolment token in the body authenticates. Only this response shows the device's API key.
    Registering again with the same token and signing key returns the same device with a new API key."""
    profile = body.model_dump(exclude_none=True, exclude={"token", "proof"})
    asked = to_proto(trust_pb2.RegisterDeviceRequest, {"token": body.token, "proof": body.proof, "device": profile})
    with gateway.authenticator.watching(address_of(request)):
        reply = await gateway.platform.registry.RegisterDevice(asked)
    gateway.authenticator.forget(subject=reply.device.id)
    return message_response(reply, 201)


@router.get("/v1/devices", response_model=Page[Device], summary="List devices")
async def list_devices(
    platform: Platform, owner: IdFilter = "", state: WordFilter = "", limit: Limit = 100, cursor: Cursor = ""
) -> JsonResponse:
    """Devices in order of id, of one owner or all, in one state or any. A device sees its own owner's."""
    asked = {"owner_id": owner, "state": state, "limit": limit, "cursor": cursor}
    request = to_proto(trust_pb2.ListDevicesRequest, asked)
    return JsonResponse(page(await platform.registry.ListDevices(request), "devices"))


@router.get("/v1/devices/{device_id}", response_model=Device, summary="One device")
async def get_device(device_id: DeviceId, platform: Platform) -> JsonResponse:
    """A device sees itself."""
    require_own_device(device_id)
    return message_response(await platform.registry.GetDevice(trust_pb2.GetDeviceRequest(device_id=device_id)))


@router.get("/v1/devices/{device_id}/keys", response_model=KnownKeys, summary="A device's public keys")
async def get_keys(device_id: DeviceId, platform: Platform) -> JsonResponse:
    """Of any device, by id, so that owners can compare its fingerprint before they trust it. Shows no other fields."""
    with acting_as(SERVICE):  # a device's own role may read only devices of its owner
        result = to_json(await platform.registry.GetDevice(trust_pb2.GetDeviceRequest(device_id=device_id)))
    return JsonResponse(
        {name: result[name] for name in ("id", "owner_id", "signing_key", "sealing_key", "key_version")}
    )


@router.patch("/v1/devices/{device_id}", response_model=Device, summary="Change a device's profile")
async def update_device(device_id: DeviceId, body: DeviceChange, platform: Platform) -> JsonResponse:
    """Location and capabilities; missing fields, and zeros inside capabilities, stay unchanged."""
    require_own_device(device_id)
    request = to_proto(trust_pb2.UpdateDeviceRequest, body, device_id=device_id)
    return message_response(await platform.registry.UpdateDevice(request))


@router.put("/v1/devices/{device_id}/keys", response_model=Device, summary="Rotate a device's public keys")
async def rotate_keys(device_id: DeviceId, body: NewKeys, gateway: Gateway) -> JsonResponse:
    """The proof is signed with the old signing key."""
    require_own_device(device_id)
    request = to_proto(trust_pb2.RotateKeysRequest, body, device_id=device_id)
    reply = await gateway.platform.registry.RotateKeys(request)
    gateway.authenticator.forget(subject=device_id)
    return message_response(reply)


@router.post("/v1/devices/{device_id}/revocation", response_model=Device, summary="Revoke a device")
async def revoke_device(device_id: DeviceId, body: Revocation, gateway: Gateway) -> JsonResponse:
    """Its API keys stop working at once and it receives no more work. This is final."""
    require_own_device(device_id)
    request = to_proto(trust_pb2.RevokeDeviceRequest, body, device_id=device_id)
    reply = await gateway.platform.registry.RevokeDevice(request)
    gateway.authenticator.forget(subject=device_id)
    return message_response(reply)


@router.delete("/v1/devices/{device_id}", response_model=Device, summary="Erase a device")
async def erase_device(device_id: DeviceId, gateway: Gateway) -> JsonResponse:
    """Revokes it and deletes its name, profile, keys, ties, links and letters. The ledger and the audit log keep its
    id, and models keep what they learnt. The owner's name is deleted with the owner's last device."""
    require_own_device(device_id)
    await gateway.platform.work.ForgetLetters(aggregation_pb2.ForgetLettersRequest(device_id=device_id))
    reply = await gateway.platform.registry.EraseDevice(trust_pb2.EraseDeviceRequest(device_id=device_id))
    gateway.authenticator.forget(subject=device_id)
    return message_response(reply)

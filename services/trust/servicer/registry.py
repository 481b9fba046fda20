"""The Registry service on the wire."""

from __future__ import annotations

import time
from typing import Any

from coterie.records.enums import DeviceState, PrincipalRole
from coterie_api.trust.v1 import trust_pb2 as pb
from coterie_api.trust.v1 import trust_pb2_grpc as rpc
from services.kit.rpc.enums import word
from services.kit.rpc.paging import NUMBER, next_cursor, read_page
from services.kit.runtime import ids
from services.trust.servicer import messages
from services.trust.usecases.auditing import Auditing
from services.trust.usecases.devices import Devices
from services.trust.usecases.erasure import Erasure
from services.trust.usecases.keys import Keys
from services.trust.usecases.owners import Owners


class RegistryServicer(rpc.RegistryServicer):
    """Owners, devices, tokens, keys and the audit log."""

    def __init__(self, owners: Owners, devices: Devices, erasure: Erasure, keys: Keys, auditing: Auditing) -> None:
        self._owners = owners
        self._devices = devices
        self._erasure = erasure
        self._keys = keys
        self._auditing = auditing

    async def CreateOwner(self, request: pb.CreateOwnerRequest, context: Any) -> pb.Owner:
        return messages.owner(await self._owners.create(request.name, request.sharing, request.public))

    async def GetOwner(self, request: pb.GetOwnerRequest, context: Any) -> pb.Owner:
        return messages.owner(await self._owners.get(request.owner_id))

    async def ListOwners(self, request: pb.ListOwnersRequest, context: Any) -> pb.ListOwnersReply:
        page = read_page(request.limit, request.cursor, ids.form("own"))
        result = await self._owners.page(page)
        return pb.ListOwnersReply(
            owners=map(messages.owner, result), next_cursor=next_cursor(result, page.limit, lambda item: item.id)
        )

    async def UpdateOwner(self, request: pb.UpdateOwnerRequest, context: Any) -> pb.Owner:
        return messages.owner(await self._owners.share(request.owner_id, request.sharing))

    async def IssueToken(self, request: pb.IssueTokenRequest, context: Any) -> pb.IssueTokenReply:
        token, expires_at = await self._owners.issue_token(request.owner_id, request.uses, request.lifetime_seconds)
        return pb.IssueTokenReply(id=token.id, token=token.text, expires_at=expires_at)

    async def RegisterDevice(self, request: pb.RegisterDeviceRequest, context: Any) -> pb.RegisterDeviceReply:
        device, key = await self._devices.register(
            request.token, messages.read_profile(request.device), messages.read_keys(request.device), request.proof
        )
        return pb.RegisterDeviceReply(device=messages.device(device), api_key=key.text)

    async def GetDevice(self, request: pb.GetDeviceRequest, context: Any) -> pb.Device:
        return messages.device(await self._devices.get(request.device_id))

    async def GetDevices(self, request: pb.GetDevicesRequest, context: Any) -> pb.GetDevicesReply:
        result = await self._devices.several(request.device_ids)
        return pb.GetDevicesReply(devices=map(messages.device, result))

    async def ListDevices(self, request: pb.ListDevicesRequest, context: Any) -> pb.ListDevicesReply:
        page = read_page(request.limit, request.cursor, ids.form("dev"))
        result = await self._devices.page(page, request.owner_id, word(DeviceState, request.state))
        return pb.ListDevicesReply(
            devices=map(messages.device, result), next_cursor=next_cursor(result, page.limit, lambda item: item.id)
        )

    async def UpdateDevice(self, request: pb.UpdateDeviceRequest, context: Any) -> pb.Device:
        device = await self._devices.update(
            request.device_id,
            messages.read_location(request.location) if request.HasField("location") else None,
            messages.read_capabilities(request.capabilities) if request.HasField("capabilities") else None,
        )
        return messages.device(device)

    async def RotateKeys(self, request: pb.RotateKeysRequest, context: Any) -> pb.Device:
        device = await self._devices.rotate_keys(request.device_id, messages.read_keys(request), request.proof)
        return messages.device(device)

    async def RevokeDevice(self, request: pb.RevokeDeviceRequest, context: Any) -> pb.Device:
        return messages.device(await self._devices.revoke(request.device_id, request.why))

    async def EraseDevice(self, request: pb.EraseDeviceRequest, context: Any) -> pb.Device:
        return messages.device(await self._erasure.erase(request.device_id))

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatReply:
        await self._devices.hear(request.device_ids)
        return pb.HeartbeatReply()

    async def CreateKey(self, request: pb.CreateKeyRequest, context: Any) -> pb.CreateKeyReply:
        key, secret = await self._keys.create(str(word(PrincipalRole, request.role)), request.name, request.expires_at)
        return pb.CreateKeyReply(id=key.id, api_key=secret.text, principal=messages.principal(key))

    async def ListKeys(self, request: pb.ListKeysRequest, context: Any) -> pb.ListKeysReply:
        page = read_page(request.limit, request.cursor, ids.form("key"))
        result = await self._keys.page(page, request.subject)
        cursor = next_cursor(result, page.limit, lambda item: item.id)
        return pb.ListKeysReply(keys=map(messages.key_info, result), next_cursor=cursor)

    async def RotateKey(self, request: pb.RotateKeyRequest, context: Any) -> pb.CreateKeyReply:
        key, secret = await self._keys.rotate(request.key_id, request.grace_seconds, request.expires_at)
        return pb.CreateKeyReply(id=key.id, api_key=secret.text, principal=messages.principal(key))

    async def RevokeKey(self, request: pb.RevokeKeyRequest, context: Any) -> pb.RevokeKeyReply:
        await self._keys.revoke(request.key_id)
        return pb.RevokeKeyReply()

    async def Authenticate(self, request: pb.AuthenticateRequest, context: Any) -> pb.Principal:
        return messages.principal(await self._keys.authenticate(request.api_key))

    async def ListAudit(self, request: pb.ListAuditRequest, context: Any) -> pb.ListAuditReply:
        page = read_page(request.limit, request.cursor, NUMBER)
        result = await self._auditing.page(page, request.subject, request.act)
        return pb.ListAuditReply(
            entries=map(messages.audit_entry, result),
            next_cursor=next_cursor(result, page.limit, lambda item: str(item.number)),
        )

    async def VerifyAudit(self, request: pb.VerifyAuditRequest, context: Any) -> pb.VerifyAuditReply:
        started = time.perf_counter()
        result = await self._auditing.verify()
        seconds = time.perf_counter() - started
        return pb.VerifyAuditReply(
            sound=result.sound, entries=result.entries, head=result.head, faults=result.faults, seconds=seconds
        )

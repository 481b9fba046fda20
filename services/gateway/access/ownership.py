"""Whose things a caller may see: devices their own, publishers their own tasks', admins everybody's."""

from __future__ import annotations

from coterie_api.aggregation.v1 import aggregation_pb2
from services.gateway.access.table import ADMIN, DEVICE, PUBLISHER
from services.gateway.errors import NotYours
from services.kit.errors import PermissionDenied
from services.kit.rpc.principal import current_principal
from services.kit.rpc.service_clients import ServiceClients


def require_own_device(device_id: str) -> None:
    """A device may act for itself alone."""
    caller = current_principal()
    if caller.role == DEVICE and caller.subject != device_id:
        raise NotYours(f"device {caller.subject} may not act for {device_id}; use that device's own key")


def require_own_owner(owner_id: str) -> None:
    """A device may see and speak for its own owner alone."""
    caller = current_principal()
    if caller.role == DEVICE and caller.owner_id != owner_id:
        raise NotYours(f"device {caller.subject} does not belong to {owner_id}; use a key of that owner's device")


async def require_own_task(platform: ServiceClients, task_id: str) -> None:
    """A publisher may see its own tasks alone, a device those it may join: aggregation knows whose they are."""
    caller = current_principal()
    if caller.role == ADMIN:
        return
    try:
        task = await platform.tasks.GetTask(aggregation_pb2.GetTaskRequest(task_id=task_id))
    except PermissionDenied as error:
        raise NotYours(error.message) from error
    if caller.role == PUBLISHER and task.publisher != caller.subject:
        raise NotYours(f"task {task_id} is another publisher's; use that publisher's key")


async def require_joined(platform: ServiceClients, task_id: str) -> None:
    """The task must be there, and a device must have joined it, to say something of its inside."""
    try:
        await platform.tasks.ListRounds(aggregation_pb2.ListRoundsRequest(task_id=task_id, limit=1))
    except PermissionDenied as error:
        raise NotYours(error.message) from error


async def require_own_account(platform: ServiceClients, account_id: str) -> None:
    """A device may see its own account and its owner's; a publisher its own and its tasks' escrows."""
    caller = current_principal()
    if caller.role == DEVICE:
        if account_id not in (f"device:{caller.subject}", f"owner:{caller.owner_id}"):
            raise NotYours(f"account {account_id} is somebody else's; yours is device:{caller.subject}")
    elif caller.role == PUBLISHER and account_id != f"publisher:{caller.subject}":
        kind, _, task_id = account_id.partition(":")
        if kind != "escrow":
            raise NotYours(f"account {account_id} is somebody else's; yours is publisher:{caller.subject}")
        await require_own_task(platform, task_id)

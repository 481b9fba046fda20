"""Ownership: a device may see its own objects, a publisher those of its tasks, an admin all."""

from __future__ import annotations

from coterie_api.aggregation.v1 import aggregation_pb2
from services.gateway.access.table import ADMIN, DEVICE, PUBLISHER
from services.gateway.errors import NotYours
from services.kit.errors import PermissionDenied
from services.kit.rpc.principal import current_principal
from services.kit.rpc.service_clients import ServiceClients


def require_own_device(device_id: str) -> None:
    """Raise `NotYours` if a device acts for another device."""
    caller = current_principal()
    if caller.role == DEVICE and caller.subject != device_id:
        raise NotYours(f"device {caller.subject} may not act for {device_id}; use that device's own key")


def require_own_owner(owner_id: str) -> None:
    """Raise `NotYours` if a device acts for another owner."""
    caller = current_principal()
    if caller.role == DEVICE and caller.owner_id != owner_id:
        raise NotYours(f"device {caller.subject} does not belong to {owner_id}; use a key of that owner's device")


async def require_own_task(platform: ServiceClients, task_id: str) -> None:
    """Raise `NotYours` for another publisher's task, or one that a device may not join."""
    caller = current_principal()
    if caller.role == ADMIN:
        return
    try:
        task = await platform.tasks.GetTask(aggregation_pb2.GetTaskRequest(task_id=task_id))
    except PermissionDenied as error:
        raise NotYours(error.message) from error
    if caller.role == PUBLISHER and task.publisher != caller.subject:
        raise NotYours(f"task {task_id} belongs to another publisher; use that publisher's key")


async def require_joined(platform: ServiceClients, task_id: str) -> None:
    """Raise unless the task exists and the caller, if a device, has joined it."""
    try:
        await platform.tasks.ListRounds(aggregation_pb2.ListRoundsRequest(task_id=task_id, limit=1))
    except PermissionDenied as error:
        raise NotYours(error.message) from error


async def require_own_account(platform: ServiceClients, account_id: str) -> None:
    """Raise `NotYours` unless the account is a device's or its owner's, or a publisher's or an escrow of its tasks."""
    caller = current_principal()
    if caller.role == DEVICE:
        if account_id not in (f"device:{caller.subject}", f"owner:{caller.owner_id}"):
            raise NotYours(f"account {account_id} belongs to another holder; yours is device:{caller.subject}")
    elif caller.role == PUBLISHER and account_id != f"publisher:{caller.subject}":
        kind, _, task_id = account_id.partition(":")
        if kind != "escrow":
            raise NotYours(f"account {account_id} belongs to another holder; yours is publisher:{caller.subject}")
        await require_own_task(platform, task_id)

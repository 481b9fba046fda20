"""Enrolments of devices in tasks."""

from __future__ import annotations

from coterie.records import Enrolment, Page
from coterie_api.aggregation.v1 import aggregation_pb2
from services.gateway.access.ownership import require_own_device
from services.gateway.routes.base import Platform, router_for
from services.gateway.schemas.base import Cursor, DeviceId, Limit, TaskId
from services.gateway.schemas.tasks import NewEnrolment
from services.gateway.wire.convert import page, to_proto
from services.gateway.wire.responses import JsonResponse, message_response

router = router_for("enrolments")


@router.get("/v1/tasks/{task_id}/enrolments", response_model=Page[Enrolment], summary="List a task's enrolments")
async def list_enrolments(task_id: TaskId, platform: Platform, limit: Limit = 100, cursor: Cursor = "") -> JsonResponse:
    """By device id."""
    request = aggregation_pb2.ListEnrolmentsRequest(task_id=task_id, limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.tasks.ListEnrolments(request), "enrolments"))


@router.put("/v1/tasks/{task_id}/enrolments/{device_id}", response_model=Enrolment, summary="Enrol a device")
async def enrol(task_id: TaskId, device_id: DeviceId, body: NewEnrolment, platform: Platform) -> JsonResponse:
    """It joins the next round. Repeating it changes the number of samples."""
    require_own_device(device_id)
    request = to_proto(aggregation_pb2.EnrolRequest, body, task_id=task_id, device_id=device_id)
    return message_response(await platform.tasks.Enrol(request))


@router.delete("/v1/tasks/{task_id}/enrolments/{device_id}", response_model=Enrolment, summary="Withdraw a device")
async def withdraw(task_id: TaskId, device_id: DeviceId, platform: Platform) -> JsonResponse:
    """It receives no more work of this task."""
    require_own_device(device_id)
    request = aggregation_pb2.WithdrawRequest(task_id=task_id, device_id=device_id)
    return message_response(await platform.tasks.Withdraw(request))

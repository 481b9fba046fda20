"""Work for devices."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from coterie.records import Work
from coterie_api.aggregation.v1 import aggregation_pb2
from services.gateway.routes.base import Gateway, Platform, router_for
from services.gateway.schemas.base import Id, RoundNumber, TaskId, WaitSeconds
from services.gateway.schemas.work import Decline, Objection
from services.gateway.usecases.long_polls import MARGIN_SECONDS
from services.gateway.wire.convert import to_proto
from services.gateway.wire.responses import JsonResponse, message_response
from services.kit.rpc.principal import current_principal

router = router_for("work")


@router.get("/v1/work", response_model=Work, summary="Ask for work")
async def get_work(
    request: Request,
    gateway: Gateway,
    wait: WaitSeconds = 0,
    task: Annotated[
        list[Id], Query(max_length=100, description="Only work of these tasks; by default of all enrolled tasks.")
    ] = [],  # noqa: B006 - FastAPI copies defaults
    clerk: Annotated[
        bool, Query(description="Also return when the caller has duties as a clerk of secure sums.")
    ] = False,
) -> JsonResponse:
    """At most one item per task. With `wait`, the response comes when there is work or after the time; ask again after
    `retry_after_seconds`. A device that sets `clerk` need not ask for duties until `duties` is true."""
    query = aggregation_pb2.GetWorkRequest(
        device_id=current_principal().subject, wait_seconds=wait, task_ids=task, clerk=clerk
    )
    call = gateway.platform.work.GetWork(query, timeout=wait + MARGIN_SECONDS)
    return message_response(await gateway.long_poller.wait(request, call))


@router.post(
    "/v1/tasks/{task_id}/rounds/{number}/decline", status_code=204, response_class=Response, summary="Decline work"
)
async def decline_work(task_id: TaskId, number: RoundNumber, body: Decline, platform: Platform) -> Response:
    """The caller will not deliver this round, so the round does not wait for it."""
    device_id = current_principal().subject
    request = to_proto(aggregation_pb2.DeclineWorkRequest, body, task_id=task_id, round=number, device_id=device_id)
    await platform.work.DeclineWork(request)
    return Response(status_code=204)


@router.post(
    "/v1/tasks/{task_id}/rounds/{number}/objection",
    status_code=204,
    response_class=Response,
    summary="Object to a head's verdict",
)
async def object_to_verdict(task_id: TaskId, number: RoundNumber, body: Objection, platform: Platform) -> Response:
    """The caller's head (`judged_by` of its participation) reported that the caller's update did not count, although it
    arrived in time. A disputed verdict costs both a little trust instead of all of the caller's; a head that devices
    of several owners dispute no longer leads in this task. Possible until the next round has ended."""
    device_id = current_principal().subject
    request = to_proto(aggregation_pb2.ObjectToVerdictRequest, body, task_id=task_id, round=number, device_id=device_id)
    await platform.work.ObjectToVerdict(request)
    return Response(status_code=204)

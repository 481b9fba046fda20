"""What a device is to do next."""

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
        list[Id], Query(max_length=100, description="Only work of these tasks; left out: of all it is enrolled in.")
    ] = [],  # noqa: B006 - FastAPI copies defaults
    clerk: Annotated[
        bool, Query(description="Answer also when the caller is called as a clerk of secure sums.")
    ] = False,
) -> JsonResponse:
    """At most one item per task. With `wait`, the answer comes when there is work or the time is over; ask again after
    `retry_after_seconds`. A device that asks with `clerk` need not ask for duties before `duties` is true."""
    question = aggregation_pb2.GetWorkRequest(
        device_id=current_principal().subject, wait_seconds=wait, task_ids=task, clerk=clerk
    )
    call = gateway.platform.work.GetWork(question, timeout=wait + MARGIN_SECONDS)
    return message_response(await gateway.long_poller.wait(request, call))


@router.post(
    "/v1/tasks/{task_id}/rounds/{number}/decline", status_code=204, response_class=Response, summary="Decline work"
)
async def decline_work(task_id: TaskId, number: RoundNumber, body: Decline, platform: Platform) -> Response:
    """The caller will not deliver this round; the others need not wait for it."""
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
    """The caller's head said in this round that nothing of it counted, although its report came in time (`judged_by` of
    its part in the round). A disputed verdict costs both a little trust instead of the caller all of it; a head that
    devices of several owners dispute leads nobody any more in this task. Possible until the next round has ended."""
    device_id = current_principal().subject
    request = to_proto(aggregation_pb2.ObjectToVerdictRequest, body, task_id=task_id, round=number, device_id=device_id)
    await platform.work.ObjectToVerdict(request)
    return Response(status_code=204)

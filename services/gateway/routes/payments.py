"""Payments, their totals, and verification of the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Literal

from fastapi import Query
from google.protobuf.message import Message
from starlette.responses import Response

from coterie.records import Page, Payment, Summary, Verification
from coterie_api.pricing.v1 import pricing_pb2
from services.gateway.access.ownership import require_own_device, require_own_task
from services.gateway.access.table import DEVICE, PUBLISHER
from services.gateway.errors import NotYours
from services.gateway.routes.base import Platform, router_for
from services.gateway.schemas.base import Cursor, IdFilter, Moment
from services.gateway.wire.convert import page
from services.gateway.wire.openapi import CSV_RESPONSE
from services.gateway.wire.responses import JsonResponse, message_response
from services.gateway.wire.spreadsheets import PAGE_ITEMS, csv_response
from services.kit.rpc.principal import current_principal
from services.kit.rpc.service_clients import ServiceClients

VERIFY_SECONDS = 300.0
router = router_for("payments")


@router.get("/v1/payments", response_model=Page[Payment], summary="List payments", responses=CSV_RESPONSE)
async def list_payments(
    platform: Platform,
    task: IdFilter = "",
    device: IdFilter = "",
    owner: IdFilter = "",
    since: Moment = 0,
    until: Moment = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Cursor = "",
    format: Literal["json", "csv"] = "json",
) -> Response:
    """Newest first; CSV streams all of them. A device sees its own payments; a publisher must name one of its tasks."""
    caller = current_principal()
    if caller.role == DEVICE:
        device = device or caller.subject
        require_own_device(device)
    await _require_task_of_publisher(platform, task)
    request = pricing_pb2.ListPaymentsRequest(
        task_id=task, device_id=device, owner_id=owner, since=since, until=until, limit=limit, cursor=cursor
    )
    if format == "json":
        return JsonResponse(page(await platform.ledger.ListPayments(request), "payments"))

    async def fetch(after: str) -> tuple[Iterable[Message], str]:
        request.limit, request.cursor = PAGE_ITEMS, after
        reply = await platform.ledger.ListPayments(request)
        return reply.payments, reply.next_cursor

    return await csv_response([field.name for field in fields(Payment)], fetch, "payments")


@router.get("/v1/payments/summary", response_model=Summary, summary="Totals")
async def summarise_payments(platform: Platform, task: IdFilter = "") -> JsonResponse:
    """Outstanding escrow, top earners, cost per task, anomalies. A publisher must name one of its tasks."""
    await _require_task_of_publisher(platform, task)
    return message_response(await platform.ledger.Summarise(pricing_pb2.SummariseRequest(task_id=task)))


@router.post("/v1/payments/verification", response_model=Verification, summary="Verify the ledger")
async def verify_payments(platform: Platform) -> JsonResponse:
    """Recomputes the sums of all entries and checks the hash chain."""
    return message_response(await platform.ledger.Verify(pricing_pb2.VerifyRequest(), timeout=VERIFY_SECONDS))


async def _require_task_of_publisher(platform: ServiceClients, task_id: str) -> None:
    if current_principal().role == PUBLISHER and not task_id:
        raise NotYours("publishers see only payments of their tasks; set `task` to one of them")
    if task_id:
        await require_own_task(platform, task_id)

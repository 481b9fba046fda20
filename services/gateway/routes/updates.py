"""Updates: devices submit what they trained."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header
from pydantic import ValidationError
from starlette.requests import Request

from coterie.records import UpdateOutcome
from coterie_api.aggregation.v1 import aggregation_pb2
from services.gateway.access.ownership import require_own_device
from services.gateway.errors import BadHeader
from services.gateway.routes.base import Dependencies, Gateway, router_for
from services.gateway.schemas.base import DIGEST_PATTERN, DeviceId, RoundNumber, TaskId
from services.gateway.schemas.work import UpdateReport
from services.gateway.wire.bodies import (
    MEDIA_TYPE,
    SMALL_BYTES,
    check_size,
    pieces_of,
    promised_digest,
    promised_size,
    store_small,
)
from services.gateway.wire.convert import to_proto
from services.gateway.wire.responses import JsonResponse, message_response

MAX_REPORT_BYTES = 32 * 1024
SUBMIT_SECONDS = 60.0
_BODY: dict[str, Any] = {
    "requestBody": {
        "description": "The update's tensors, a safetensors file; empty for the form `report`.",
        "required": False,
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}
router = router_for("updates")


@router.put(
    "/v1/tasks/{task_id}/rounds/{number}/updates/{device_id}",
    response_model=UpdateOutcome,
    summary="Submit an update",
    openapi_extra=_BODY,
)
async def put_update(
    request: Request,
    task_id: TaskId,
    number: RoundNumber,
    device_id: DeviceId,
    gateway: Gateway,
    coterie_update: Annotated[
        str,
        Header(
            description="JSON text, at most 32 KiB: the fields of UpdateReport.",
            examples=['{"form": "mean", "weight": 150, "metrics": {"accuracy": 0.91}}'],
        ),
    ] = "{}",
    coterie_digest: Annotated[
        str, Header(description=f"SHA-256 of the body ({DIGEST_PATTERN}); required unless the form is `report`.")
    ] = "",
) -> JsonResponse:
    """The body streams; its digest is checked before anything changes. Safe to repeat: the same update returns
    "repeated". A large body is refused before it is read if aggregation would reject it, and not read if it is already
    stored."""
    require_own_device(device_id)
    report = _read_report(coterie_update)
    key = {"task_id": task_id, "round": number, "device_id": device_id}
    stored: dict[str, Any] = {}
    if report.form != "report":
        digest = promised_digest(request)
        stored = {"digest": digest, "size_bytes": await _store(request, gateway, key, digest)}
    submission = to_proto(aggregation_pb2.SubmitUpdateRequest, report, **key, **stored)
    return message_response(await gateway.platform.work.SubmitUpdate(submission, timeout=SUBMIT_SECONDS))


def _read_report(text: str) -> UpdateReport:
    if len(text) > MAX_REPORT_BYTES:
        raise BadHeader(f"Coterie-Update has {len(text)} characters; the limit is {MAX_REPORT_BYTES}")
    try:
        return UpdateReport.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(("Coterie-Update", *(str(part) for part in first["loc"])))
        raise BadHeader(f"{field}: {first['msg']}", details={"field": field}) from error


async def _store(request: Request, gateway: Dependencies, key: dict[str, Any], digest: str) -> int:
    """Store the body and return its size; ask aggregation first whether it accepts a large one."""
    size, limit = promised_size(request), gateway.settings.max_model_bytes
    check_size(size, limit)
    if size is None or size > SMALL_BYTES:
        query = aggregation_pb2.AdmitUpdateRequest(digest=digest, size_bytes=size or 0, **key)
        admission = await gateway.platform.work.AdmitUpdate(query)
        if admission.stored and size is not None:
            return size
        limit = min(limit, admission.max_bytes)
        check_size(size, limit)
    else:
        return await store_small(request, gateway.blobs, digest)
    _, stored_bytes = await gateway.blobs.put(pieces_of(request), max_bytes=limit, digest=digest)
    return stored_bytes

"""Sealed letters between devices: stored and forwarded, never opened."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from coterie.records import Letter, Letters
from coterie_api.aggregation.v1 import aggregation_pb2
from services.gateway.routes.base import Dependencies, Gateway, router_for
from services.gateway.schemas.base import MOST_INT32, AnyId, DeviceId, Id, RoundNumber, TaskId, WaitSeconds
from services.gateway.usecases.long_polls import MARGIN_SECONDS
from services.gateway.wire.bodies import (
    MEDIA_TYPE,
    SMALL_BYTES,
    check_size,
    download,
    pieces_of,
    promised_digest,
    promised_size,
    store_small,
)
from services.gateway.wire.convert import to_json, to_proto
from services.gateway.wire.openapi import BLOB_RESPONSES, DIGEST_PARAMETER
from services.gateway.wire.responses import JsonResponse, message_response
from services.kit.rpc.principal import current_principal

_BODY: dict[str, Any] = {
    "parameters": [DIGEST_PARAMETER],
    "requestBody": {
        "description": "The ciphertext, a NaCl box.",
        "required": True,
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    },
}
router = router_for("letters")


@router.put(
    "/v1/tasks/{task_id}/rounds/{number}/letters/{recipient}",
    response_model=Letter,
    summary="Send a letter",
    openapi_extra=_BODY,
)
async def send_letter(
    request: Request,
    task_id: TaskId,
    number: RoundNumber,
    recipient: DeviceId,
    gateway: Gateway,
    kind: Annotated[Literal["update", "parameters", "receipt"], Query(description="Kind of content.")],
    plan_version: Annotated[int, Query(ge=0, le=MOST_INT32, description="Plan the letter belongs to.")] = 0,
) -> JsonResponse:
    """From the caller to a device that it exchanges letters with in the round. Safe to repeat."""
    digest = promised_digest(request)
    letter = to_proto(
        aggregation_pb2.Letter,
        {"kind": kind},
        task_id=task_id,
        round=number,
        plan_version=plan_version,
        sender=current_principal().subject,
        recipient=recipient,
        digest=digest,
        size_bytes=promised_size(request) or 0,
    )
    letter.size_bytes = await _store(request, gateway, letter)
    return message_response(await gateway.platform.work.SendLetter(aggregation_pb2.SendLetterRequest(letter=letter)))


async def _store(request: Request, gateway: Dependencies, letter: aggregation_pb2.Letter) -> int:
    """Store the body and return its size; ask aggregation first whether it accepts a large letter."""
    size, limit = promised_size(request), gateway.settings.max_letter_bytes
    check_size(size, limit)
    if size is not None and size <= SMALL_BYTES:
        return await store_small(request, gateway.blobs, letter.digest)
    admission = await gateway.platform.work.AdmitLetter(aggregation_pb2.SendLetterRequest(letter=letter))
    limit = min(limit, admission.max_bytes)
    check_size(size, limit)
    _, stored_bytes = await gateway.blobs.put(pieces_of(request), max_bytes=limit, digest=letter.digest)
    return stored_bytes


@router.get("/v1/tasks/{task_id}/rounds/{number}/letters", response_model=Letters, summary="Letters to the caller")
async def list_letters(
    request: Request,
    task_id: TaskId,
    number: RoundNumber,
    gateway: Gateway,
    wait: WaitSeconds = 0,
    known: Annotated[list[Id], Query(max_length=1000, description="Ids of letters that the caller has.")] = [],  # noqa: B006
    plan_version: Annotated[
        int, Query(ge=0, le=MOST_INT32, description="Plan that the caller follows: 409 once it is replaced; 0 = any.")
    ] = 0,
) -> JsonResponse:
    """Letters that are not in `known`; with `wait`, the response comes with the first letter or after the time."""
    query = aggregation_pb2.ListLettersRequest(
        task_id=task_id,
        round=number,
        device_id=current_principal().subject,
        known=known,
        wait_seconds=wait,
        plan_version=plan_version,
    )
    call = gateway.platform.work.ListLetters(query, timeout=wait + MARGIN_SECONDS)
    reply = await gateway.long_poller.wait(request, call)
    document = to_json(reply)
    return JsonResponse(
        {"items": document["letters"], "round_state": document["round_state"], "gone": document["gone"]}
    )


@router.get("/v1/letters/{letter_id}", response_class=Response, summary="Fetch a letter", responses=BLOB_RESPONSES)
async def get_letter(request: Request, letter_id: AnyId, gateway: Gateway) -> Response:
    """The ciphertext, streamed, for its recipient only."""
    query = aggregation_pb2.AuthoriseDownloadRequest(letter_id=letter_id)
    blob = await gateway.platform.tasks.AuthoriseDownload(query)
    return await download(request, gateway.blobs, blob.digest, blob.size_bytes)

"""Secure sums: documents of a sum, and duties of its clerks. The gateway forwards sealed data that it cannot read."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from coterie.records import Duty, Items, SurvivorList, WantedShares
from coterie.secure_sums.protocol_lists import framed
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.gateway.access.ownership import require_own_device
from services.gateway.errors import BadShareSize
from services.gateway.routes.base import Gateway, Platform, router_for
from services.gateway.schemas.base import Cohort, DeviceId, RoundNumber, SessionNumber, ShareNumber, TaskId, WaitSeconds
from services.gateway.schemas.sums import Agreement, Answer, Offer, ReadyCheck
from services.gateway.usecases.long_polls import MARGIN_SECONDS
from services.gateway.wire.bodies import MEDIA_TYPE, check_size, pieces_of, prefetched, promised_digest, promised_size
from services.gateway.wire.convert import to_json
from services.gateway.wire.openapi import DIGEST_PARAMETER
from services.gateway.wire.responses import JsonResponse, message_response
from services.kit.database.blobs import BlobStore
from services.kit.rpc.principal import current_principal

LETTERS_AT_ONCE = 64
_AT = "/v1/tasks/{task_id}/rounds/{number}/sums/{cohort}/{session_number}"
_CANONICAL: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Canonical JSON; digests and signatures cover exactly these bytes.",
        "content": {"application/json": {"schema": {}}},
    }
}
_LETTERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "For each candidate by id: length of the id (2 bytes, big-endian), id, length (4), letter.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}
_SHARE: dict[str, Any] = {
    "parameters": [DIGEST_PARAMETER],
    "requestBody": {
        "description": "The words of the share sum, little-endian.",
        "required": True,
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    },
}
router = router_for("sums")


async def _place(task_id: TaskId, number: RoundNumber, cohort: Cohort, session_number: SessionNumber) -> pb.SumPlace:
    return pb.SumPlace(task_id=task_id, round=number, cohort=cohort, session_number=session_number)


Place = Annotated[pb.SumPlace, Depends(_place)]


@router.get("/v1/duties", response_model=Items[Duty], summary="Ask for duties as a clerk")
async def list_duties(request: Request, gateway: Gateway, wait: WaitSeconds = 0) -> JsonResponse:
    """At most one duty per sum. With `wait`, the response comes with the first duty or after the time. A duty `forget`
    is sent once; the next poll acknowledges it."""
    query = pb.ListDutiesRequest(device_id=current_principal().subject, wait_seconds=wait)
    call = gateway.platform.sums.ListDuties(query, timeout=wait + MARGIN_SECONDS)
    reply = await gateway.long_poller.wait(request, call)
    return JsonResponse({"items": [to_json(duty) for duty in reply.duties]})


@router.put(_AT + "/key-offers/{device_id}", status_code=204, response_class=Response, summary="Offer a session key")
async def put_key_offer(place: Place, device_id: DeviceId, body: Offer, platform: Platform) -> Response:
    """Safe to repeat with the same key; another key for the same session is refused."""
    require_own_device(device_id)
    await platform.sums.PutKeyOffer(
        pb.PutKeyOfferRequest(place=place, device_id=device_id, session_key=body.session_key, signature=body.signature)
    )
    return Response(status_code=204)


@router.get(_AT + "/terms", response_class=Response, responses=_CANONICAL, summary="Terms of a sum")
async def get_terms(place: Place, platform: Platform) -> Response:
    """For the sum's participants and clerks."""
    return await _document(place, platform, words.SUM_DOCUMENT_TERMS)


@router.get(_AT + "/participants", response_class=Response, responses=_CANONICAL, summary="Participants of a sum")
async def get_participants(place: Place, platform: Platform) -> Response:
    """Device ids and signing keys, by id. For the sum's participants and clerks."""
    return await _document(place, platform, words.SUM_DOCUMENT_PARTICIPANTS)


@router.get(_AT + "/candidates", response_class=Response, responses=_CANONICAL, summary="Candidates of a sum")
async def get_candidates(place: Place, platform: Platform) -> Response:
    """[device id, SHA-256 of the masked words, root, letter key, signature] of each candidate, by id. For clerks."""
    return await _document(place, platform, words.SUM_DOCUMENT_CANDIDATES)


async def _document(place: pb.SumPlace, platform: Platform, document: words.SumDocument.ValueType) -> Response:
    query = pb.ReadSumRequest(place=place, device_id=current_principal().subject, document=document)
    text = (await platform.sums.ReadSum(query)).text.encode()
    headers = {"ETag": f'"{hashlib.sha256(text).hexdigest()}"', "Cache-Control": "private, no-cache"}
    return Response(text, headers=headers, media_type="application/json")


@router.get(_AT + "/letters", response_class=Response, responses=_LETTERS, summary="Letters to the calling clerk")
async def get_sum_letters(place: Place, gateway: Gateway) -> Response:
    """The candidates' letters to the caller, concatenated."""
    reply = await gateway.platform.sums.ListSumLetters(_reader(place))
    return StreamingResponse(await prefetched(_framed(gateway.blobs, reply.letters)), media_type=MEDIA_TYPE)


async def _framed(blobs: BlobStore, letters: Sequence[pb.SumLetter]) -> AsyncIterator[bytes]:
    def read(batch: Sequence[pb.SumLetter]) -> bytes:
        return b"".join(
            framed(item.device_id, bytes(blobs.read(item.digest, item.start, item.length))) for item in batch
        )

    for start in range(0, len(letters), LETTERS_AT_ONCE):
        yield await asyncio.to_thread(read, letters[start : start + LETTERS_AT_ONCE])


@router.put(_AT + "/ready-checks/{device_id}", status_code=204, response_class=Response, summary="Check the candidates")
async def put_ready_check(place: Place, device_id: DeviceId, body: ReadyCheck, platform: Platform) -> Response:
    """The candidates that the clerk can serve, and the faults of the others."""
    require_own_device(device_id)
    await platform.sums.PutReadyCheck(
        pb.PutReadyCheckRequest(
            place=place, device_id=device_id, candidates=body.candidates, ready=body.ready, faults=body.faults
        )
    )
    return Response(status_code=204)


@router.get(_AT + "/survivors", response_model=SurvivorList, summary="Survivors to agree to")
async def get_survivors(place: Place, platform: Platform) -> JsonResponse:
    """They do not change within a session."""
    agreed = await platform.sums.GetSurvivors(_reader(place))
    return JsonResponse(
        {"survivors": [[survivor.device_id, survivor.root] for survivor in agreed.survivors], "digest": agreed.digest}
    )


@router.put(_AT + "/commits/{device_id}", status_code=204, response_class=Response, summary="Agree to the survivors")
async def put_commit(place: Place, device_id: DeviceId, body: Agreement, platform: Platform) -> Response:
    """Safe to repeat."""
    require_own_device(device_id)
    await platform.sums.PutCommit(
        pb.PutCommitRequest(place=place, device_id=device_id, digest=body.digest, signature=body.signature)
    )
    return Response(status_code=204)


@router.get(_AT + "/commits", response_model=dict[str, str], summary="Clerks' agreements to the survivors")
async def get_commits(place: Place, platform: Platform) -> JsonResponse:
    """Signatures by clerk, once enough clerks agreed."""
    return JsonResponse(dict((await platform.sums.GetCommits(_reader(place))).signatures))


@router.put(_AT + "/answers/{device_id}", response_model=WantedShares, summary="Report digests of share sums")
async def put_answer(place: Place, device_id: DeviceId, body: Answer, platform: Platform) -> JsonResponse:
    """Returns which share sums the clerk must upload now. Safe to repeat until there are none."""
    require_own_device(device_id)
    digests = {int(share): digest for share, digest in body.digests.items()}
    request = pb.PutAnswerRequest(
        place=place, device_id=device_id, digest=body.digest, digests=digests, signature=body.signature
    )
    return message_response(await platform.sums.PutAnswer(request))


@router.put(
    _AT + "/answers/{device_id}/shares/{share}",
    status_code=204,
    response_class=Response,
    summary="Upload a share sum",
    openapi_extra=_SHARE,
)
async def put_share(
    request: Request, place: Place, device_id: DeviceId, share: ShareNumber, gateway: Gateway
) -> Response:
    """The words must hash to the digest the clerk signed."""
    require_own_device(device_id)
    digest = promised_digest(request)
    share_request = pb.ShareRequest(place=place, device_id=device_id, share=share, digest=digest)
    admission = await gateway.platform.sums.AdmitShare(share_request)
    check_size(promised_size(request), admission.size_bytes)
    if not admission.stored:
        _, size = await gateway.blobs.put(pieces_of(request), max_bytes=admission.size_bytes, digest=digest)
        if size != admission.size_bytes:
            raise BadShareSize(f"the share sum has {size} bytes; its terms require {admission.size_bytes}")
    await gateway.platform.sums.PutShare(share_request)
    return Response(status_code=204)


def _reader(place: pb.SumPlace) -> pb.SumReader:
    return pb.SumReader(place=place, device_id=current_principal().subject)

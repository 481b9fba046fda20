"""Links to owners' browsers, and the decisions that browsers sign for a device."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from coterie.records import ApiKey, BrowserLink, Decision, Items
from coterie_api.trust.v1 import trust_pb2
from services.gateway.access.guard import PRINCIPAL
from services.gateway.access.ownership import require_own_device
from services.gateway.errors import NotLinked
from services.gateway.routes.base import Gateway, Platform, router_for
from services.gateway.schemas.base import AnyId, DeviceId, Limit
from services.gateway.schemas.links import Claim, DecisionAnswer, NewDecision, NewLink, NewNote, NewSession
from services.gateway.wire.convert import to_json, to_proto
from services.gateway.wire.responses import JsonResponse, message_response

router = router_for("links")


@router.post(
    "/v1/devices/{device_id}/links", status_code=201, response_model=BrowserLink, summary="Offer a link to a browser"
)
async def make_link(device_id: DeviceId, body: NewLink, platform: Platform) -> JsonResponse:
    """Called by the device: `coterie device link` shows its owner the address to open."""
    require_own_device(device_id)
    return message_response(
        await platform.links.MakeLink(to_proto(trust_pb2.MakeLinkRequest, body, device_id=device_id)), 201
    )


@router.post("/v1/links/{link_id}/claim", response_model=BrowserLink, summary="Claim a link")
async def claim_link(link_id: AnyId, body: Claim, platform: Platform) -> JsonResponse:
    """Needs no API key: the token authenticates, once. The same browser may repeat it."""
    return message_response(await platform.links.ClaimLink(to_proto(trust_pb2.ClaimLinkRequest, body, link_id=link_id)))


@router.post("/v1/links/{link_id}/sessions", status_code=201, response_model=ApiKey, summary="Sign a browser in")
async def begin_session(link_id: AnyId, body: NewSession, gateway: Gateway) -> JsonResponse:
    """Needs no API key: the signature of the linked browser authenticates. The key is valid for 12 hours; it reads what
    the device's owner may see and submits signed decisions. Earlier keys of the link end."""
    reply = await gateway.platform.links.BeginSession(to_proto(trust_pb2.BeginSessionRequest, body, link_id=link_id))
    gateway.authenticator.forget(subject=reply.principal.subject)
    return message_response(reply, 201)


@router.get("/v1/devices/{device_id}/links", response_model=Items[BrowserLink], summary="List a device's links")
async def list_links(device_id: DeviceId, platform: Platform) -> JsonResponse:
    """Newest first."""
    require_own_device(device_id)
    reply = await platform.links.ListLinks(trust_pb2.ListLinksRequest(device_id=device_id))
    return JsonResponse({"items": [to_json(link) for link in reply.links]})


@router.delete(
    "/v1/devices/{device_id}/links/{link_id}", status_code=204, response_class=Response, summary="End a link"
)
async def end_link(device_id: DeviceId, link_id: AnyId, gateway: Gateway) -> Response:
    """Signs its browser out and ends its decisions. An admin may end the link of a lost browser."""
    require_own_device(device_id)
    await gateway.platform.links.EndLink(trust_pb2.EndLinkRequest(device_id=device_id, link_id=link_id))
    gateway.authenticator.forget(subject=device_id)
    return Response(status_code=204)


@router.put(
    "/v1/devices/{device_id}/links/{link_id}/note",
    status_code=204,
    response_class=Response,
    summary="Put a sealed note for a browser",
)
async def put_note(device_id: DeviceId, link_id: AnyId, body: NewNote, platform: Platform) -> Response:
    """Called by the device; the note is sealed for that browser."""
    require_own_device(device_id)
    request = to_proto(trust_pb2.PutNoteRequest, body, device_id=device_id, link_id=link_id)
    await platform.links.PutNote(request)
    return Response(status_code=204)


@router.post("/v1/devices/{device_id}/decisions", status_code=201, response_model=Decision, summary="Decide")
async def decide(device_id: DeviceId, body: NewDecision, request: Request, platform: Platform) -> JsonResponse:
    """Called by a linked browser with its own API key. The device checks the signature and reports the outcome."""
    require_own_device(device_id)
    link_id = request.scope[PRINCIPAL].link_id
    if not link_id:
        raise NotLinked("only a linked browser may decide; run `coterie device link` and open its address in a browser")
    decision = await platform.links.Decide(
        to_proto(trust_pb2.DecideRequest, body, device_id=device_id, link_id=link_id)
    )
    return message_response(decision, 201)


@router.get("/v1/devices/{device_id}/decisions", response_model=Items[Decision], summary="List decisions")
async def list_decisions(
    device_id: DeviceId,
    platform: Platform,
    waiting: Annotated[bool, Query(description="Only those the device has not read, oldest first.")] = False,
    limit: Limit = 100,
) -> JsonResponse:
    """The owner's decisions for a device and their outcomes, newest first."""
    require_own_device(device_id)
    request = trust_pb2.ListDecisionsRequest(device_id=device_id, waiting=waiting, limit=limit)
    reply = await platform.links.ListDecisions(request)
    return JsonResponse({"items": [to_json(decision) for decision in reply.decisions]})


@router.put(
    "/v1/devices/{device_id}/decisions/{decision_id}/answer",
    response_model=Decision,
    summary="Report the outcome of a decision",
)
async def answer_decision(
    device_id: DeviceId, decision_id: AnyId, body: DecisionAnswer, platform: Platform
) -> JsonResponse:
    """Called by the device; its first answer counts."""
    require_own_device(device_id)
    request = to_proto(trust_pb2.AnswerDecisionRequest, body, device_id=device_id, decision_id=decision_id)
    return message_response(await platform.links.AnswerDecision(request))

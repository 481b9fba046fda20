"""Trust and relations. The trust registry decides which ties a caller may see (owners' sharing)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Query
from starlette.responses import Response

from coterie.records import (
    HistoryPoint,
    Items,
    Loss,
    NodeLinkGraph,
    Page,
    Relation,
    RelationCounts,
    TrustedPeer,
    TrustExplanation,
    TrustGraph,
)
from coterie.records.enums import RelationKind
from coterie_api.aggregation.v1 import aggregation_pb2
from coterie_api.enums.v1 import enums_pb2
from coterie_api.trust.v1 import trust_pb2
from services.gateway.access.ownership import require_own_owner, require_own_task
from services.gateway.access.table import PUBLISHER
from services.gateway.errors import NotYours
from services.gateway.routes.base import Platform, router_for
from services.gateway.schemas.base import Cursor, DeviceId, IdFilter, Limit, Moment, OwnerId
from services.gateway.schemas.social import Derivation, Friendship
from services.gateway.wire.convert import page, to_json, to_proto
from services.gateway.wire.responses import JsonResponse, message_response
from services.kit.rpc.enums import text_in, word
from services.kit.rpc.principal import current_principal
from services.kit.rpc.service_clients import ServiceClients

router = router_for("trust")


@router.get(
    "/v1/trust/pairs/{a}/{b}", response_model=TrustExplanation, summary="Trust between two devices, with its reasons"
)
async def explain_trust(a: DeviceId, b: DeviceId, platform: Platform, at: Moment = 0) -> JsonResponse:
    """Direct, indirect and combined trust of `a` in `b`, with the counts, the path and the relations behind it."""
    request = trust_pb2.ExplainTrustRequest(device_a=a, device_b=b, at=at)
    return message_response(await platform.trust.ExplainTrust(request))


@router.get("/v1/trust/pairs/{a}/{b}/history", response_model=Items[HistoryPoint], summary="Direct trust over time")
async def get_history(
    a: DeviceId,
    b: DeviceId,
    platform: Platform,
    since: Moment = 0,
    until: Moment = 0,
    points: Annotated[int, Query(ge=2, le=1000)] = 50,
) -> JsonResponse:
    """Direct trust of a pair at evenly spaced times."""
    request = trust_pb2.GetHistoryRequest(device_a=a, device_b=b, since=since, until=until, points=points)
    reply = await platform.trust.GetHistory(request)
    return JsonResponse({"items": [to_json(point) for point in reply.points]})


@router.get("/v1/trust/peers/{device_id}", response_model=Items[TrustedPeer], summary="The peers a device trusts most")
async def list_peers(device_id: DeviceId, platform: Platform, limit: Limit = 20, at: Moment = 0) -> JsonResponse:
    """Most trusted first."""
    request = trust_pb2.ListPeersRequest(device_id=device_id, limit=limit, at=at)
    reply = await platform.trust.ListPeers(request)
    return JsonResponse({"items": [to_json(peer) for peer in reply.peers]})


@router.get(
    "/v1/trust/graph",
    response_model=TrustGraph | NodeLinkGraph,
    summary="The trust graph",
    responses={200: {"content": {"application/graphml+xml": {"schema": {"type": "string"}}}}},
)
async def get_graph(
    platform: Platform,
    owner: IdFilter = "",
    task: IdFilter = "",
    least: Annotated[float, Query(ge=0, le=1, description="Only ties with at least this direct trust.")] = 0,
    at: Moment = 0,
    format: Annotated[
        Literal["json", "graphml", "node-link"], Query(description="node-link is networkx's JSON form.")
    ] = "json",
) -> Response:
    """Devices and ties: of one owner's devices, of one task's enrolled devices, or of all. A publisher must name one of
    its tasks."""
    if current_principal().role == PUBLISHER and not task:
        raise NotYours("publishers see only graphs of their tasks; set `task` to one of them")
    request = trust_pb2.GetGraphRequest(owner_id=owner, least=least, at=at)
    if task:
        await require_own_task(platform, task)
        request.device_ids.extend(await _enrolled(platform, task))
    is_empty = bool(task) and not request.device_ids  # no ids would mean every device
    graph = trust_pb2.TrustGraph(at=at) if is_empty else await platform.trust.GetGraph(request)
    if format == "json":
        return message_response(graph)
    return await asyncio.to_thread(_exported, graph, format)


async def _enrolled(platform: ServiceClients, task_id: str) -> list[str]:
    devices: list[str] = []
    cursor = ""
    while True:
        request = aggregation_pb2.ListEnrolmentsRequest(task_id=task_id, limit=500, cursor=cursor)
        reply = await platform.tasks.ListEnrolments(request)
        devices.extend(item.device_id for item in reply.enrolments if item.state == enums_pb2.ENROLMENT_STATE_ACTIVE)
        cursor = reply.next_cursor
        if not cursor:
            return devices


def _exported(graph: trust_pb2.TrustGraph, format: str) -> Response:
    import networkx as nx  # a tenth of the gateway's start, for one route

    network: nx.Graph[str] = nx.Graph(at=graph.at)
    for device in graph.devices:
        state = str(text_in("DeviceState", device.state))  # GraphML knows plain text only
        network.add_node(device.id, name=device.name, owner=device.owner_id, kind=device.kind, state=state)
    for tie in graph.ties:
        kinds = " ".join(word(RelationKind, kind) for kind in tie.relations)
        network.add_edge(tie.device_a, tie.device_b, direct=tie.direct, relations=kinds)
    if format == "graphml":
        return Response("\n".join(nx.generate_graphml(network)), media_type="application/graphml+xml")
    document: dict[str, Any] = nx.node_link_data(network, edges="links")
    return JsonResponse(document)


@router.get("/v1/trust/losses", response_model=Items[Loss], summary="Pairs that lost most trust")
async def list_losses(platform: Platform, device: IdFilter = "", since: Moment = 0, limit: Limit = 20) -> JsonResponse:
    """Pairs whose direct trust fell most since a time, with the interactions that caused it."""
    request = trust_pb2.ListLossesRequest(device_id=device, since=since, limit=limit)
    reply = await platform.trust.ListLosses(request)
    return JsonResponse({"items": [to_json(loss) for loss in reply.losses]})


@router.get("/v1/trust/relations/{device_id}", response_model=Page[Relation], summary="Relations of a device")
async def list_relations(
    device_id: DeviceId, platform: Platform, limit: Limit = 100, cursor: Cursor = ""
) -> JsonResponse:
    """Ownership, co-location, friendship and others, with strength and cause."""
    request = trust_pb2.ListRelationsRequest(device_id=device_id, limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.trust.ListRelations(request), "relations"))


@router.post("/v1/trust/relations/derive", response_model=RelationCounts, summary="Derive relations again")
async def derive_relations(body: Derivation, platform: Platform) -> JsonResponse:
    """From profiles and meetings; returns the number of relations by kind."""
    request = to_proto(trust_pb2.DeriveRelationsRequest, body)
    return message_response(await platform.trust.DeriveRelations(request, timeout=120))


@router.put(
    "/v1/trust/friendships/{owner_a}/{owner_b}", response_model=Relation, summary="Declare or withdraw friendship"
)
async def declare_friendship(owner_a: OwnerId, owner_b: OwnerId, body: Friendship, platform: Platform) -> JsonResponse:
    """Between two owners; strength 0 withdraws it. A device acts for its own owner, which must be `owner_a`; the
    friendship holds once the other owner declares it too. An admin declares it for both."""
    require_own_owner(owner_a)
    request = to_proto(trust_pb2.DeclareFriendshipRequest, body, owner_a=owner_a, owner_b=owner_b)
    return message_response(await platform.trust.DeclareFriendship(request))


@router.get("/v1/trust/friendships/{owner_id}", response_model=Page[Relation], summary="Friendships of an owner")
async def list_friendships(
    owner_id: OwnerId, platform: Platform, limit: Limit = 100, cursor: Cursor = ""
) -> JsonResponse:
    """Includes friendships that one owner has not confirmed yet (`confirmed` is false)."""
    require_own_owner(owner_id)
    request = trust_pb2.ListFriendshipsRequest(owner_id=owner_id, limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.trust.ListFriendships(request), "relations"))

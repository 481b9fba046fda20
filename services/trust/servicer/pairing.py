"""The Links service on the wire."""

from __future__ import annotations

from typing import Any

from coterie.records.enums import DecisionState
from coterie_api.trust.v1 import trust_pb2 as pb
from coterie_api.trust.v1 import trust_pb2_grpc as rpc
from services.kit.rpc.enums import number, word
from services.kit.rpc.paging import NUMBER, read_page
from services.trust.domain.records import Decision, Link
from services.trust.servicer import messages
from services.trust.usecases.pairing import Links


class LinksServicer(rpc.LinksServicer):
    """Links to owners' browsers, and their decisions."""

    def __init__(self, links: Links) -> None:
        self._links = links

    async def MakeLink(self, request: pb.MakeLinkRequest, context: Any) -> pb.Link:
        return _link(await self._links.make(request.device_id, request.token_digest, request.lifetime_seconds))

    async def ClaimLink(self, request: pb.ClaimLinkRequest, context: Any) -> pb.Link:
        return _link(
            await self._links.claim(request.link_id, request.token, request.browser_key, request.proof, request.name)
        )

    async def BeginSession(self, request: pb.BeginSessionRequest, context: Any) -> pb.CreateKeyReply:
        key, secret = await self._links.begin_session(request.link_id, request.at_milliseconds, request.signature)
        return pb.CreateKeyReply(id=key.id, api_key=secret.text, principal=messages.principal(key))

    async def ListLinks(self, request: pb.ListLinksRequest, context: Any) -> pb.ListLinksReply:
        return pb.ListLinksReply(links=map(_link, await self._links.list(request.device_id)))

    async def EndLink(self, request: pb.EndLinkRequest, context: Any) -> pb.EndLinkReply:
        await self._links.end(request.device_id, request.link_id)
        return pb.EndLinkReply()

    async def PutNote(self, request: pb.PutNoteRequest, context: Any) -> pb.PutNoteReply:
        await self._links.put_note(request.device_id, request.link_id, request.note)
        return pb.PutNoteReply()

    async def Decide(self, request: pb.DecideRequest, context: Any) -> pb.Decision:
        made = await self._links.decide(request.device_id, request.link_id, request.text, request.signature)
        return _decision(made)

    async def ListDecisions(self, request: pb.ListDecisionsRequest, context: Any) -> pb.ListDecisionsReply:
        limit = read_page(request.limit, "", NUMBER).limit
        result = await self._links.decisions(request.device_id, request.waiting, limit)
        return pb.ListDecisionsReply(decisions=map(_decision, result))

    async def AnswerDecision(self, request: pb.AnswerDecisionRequest, context: Any) -> pb.Decision:
        state = word(DecisionState, request.state)
        return _decision(await self._links.answer(request.device_id, request.decision_id, state, request.note))


def _link(value: Link) -> pb.Link:
    return pb.Link(
        id=value.id,
        device_id=value.device_id,
        created_at=value.created_at,
        expires_at=value.expires_at,
        claimed_at=value.claimed_at,
        name=value.name,
        browser_key=value.browser_key,
        proof=value.proof,
        note=value.note,
    )


def _decision(value: Decision) -> pb.Decision:
    return pb.Decision(
        id=value.id,
        device_id=value.device_id,
        link_id=value.link_id,
        at=value.at,
        text=value.text,
        signature=value.signature,
        state=number(DecisionState(value.state)),
        note=value.note,
    )

"""The Trust service on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from coterie.records.enums import RelationKind
from coterie_api.trust.v1 import trust_pb2 as pb
from coterie_api.trust.v1 import trust_pb2_grpc as rpc
from services.kit.rpc.enums import word
from services.kit.rpc.paging import NUMBER, next_cursor, read_page
from services.kit.rpc.whatif_service import WhatIfService
from services.kit.runtime.concurrency import thread_if_large
from services.trust.servicer import messages
from services.trust.servicer import social_messages as social
from services.trust.usecases.graphs import Graphs
from services.trust.usecases.history import TrustHistory
from services.trust.usecases.imports import Imports
from services.trust.usecases.recording import Recording
from services.trust.usecases.relations import SocialRelations
from services.trust.usecases.scores import Scores


class TrustServicer(rpc.TrustServicer):
    """Interactions, relations and trust."""

    def __init__(
        self,
        recording: Recording,
        scores: Scores,
        history: TrustHistory,
        graphs: Graphs,
        relations: SocialRelations,
        imports: Imports,
        questions: WhatIfService,
    ) -> None:
        self._recording = recording
        self._scores = scores
        self._history = history
        self._graphs = graphs
        self._relations = relations
        self._imports = imports
        self._questions = questions

    async def RecordInteractions(
        self, request: pb.RecordInteractionsRequest, context: Any
    ) -> pb.RecordInteractionsReply:
        batch = await thread_if_large(len(request.interactions), social.read_reports, request.interactions)
        recorded, before = await self._recording.record(batch)
        return pb.RecordInteractionsReply(
            recorded=recorded.new, repeated_before=before, unconfirmed=recorded.unconfirmed
        )

    async def ListInteractions(self, request: pb.ListInteractionsRequest, context: Any) -> pb.ListInteractionsReply:
        page = read_page(request.limit, request.cursor, NUMBER)
        result, named = await self._history.interactions(request.device_a, request.device_b, page)
        return pb.ListInteractionsReply(
            interactions=[social.interaction(item, named, *self._history.terms()) for item in result],
            next_cursor=next_cursor(result, page.limit, lambda item: str(item.number)),
        )

    async def DeclareFriendship(self, request: pb.DeclareFriendshipRequest, context: Any) -> pb.Relation:
        declared = await self._relations.befriend(request.owner_a, request.owner_b, request.strength)
        return social.declared(declared, request.owner_a, request.owner_b, request.strength)

    async def ListFriendships(self, request: pb.ListFriendshipsRequest, context: Any) -> pb.ListRelationsReply:
        page = read_page(request.limit, request.cursor, NUMBER)
        own, result = await self._relations.friendships(request.owner_id, page)
        return pb.ListRelationsReply(
            relations=[social.friendship(item, own, request.owner_id, other) for _, other, item in result],
            next_cursor=next_cursor(result, page.limit, lambda item: str(item[0])),
        )

    async def DeriveRelations(self, request: pb.DeriveRelationsRequest, context: Any) -> pb.DeriveRelationsReply:
        counted = await self._relations.derive([word(RelationKind, kind) for kind in request.kinds])
        return pb.DeriveRelationsReply(counts=counted)

    async def ListRelations(self, request: pb.ListRelationsRequest, context: Any) -> pb.ListRelationsReply:
        page = read_page(request.limit, request.cursor, NUMBER)
        result, named = await self._relations.page(request.device_id, page)
        return pb.ListRelationsReply(
            relations=[social.relation(item, named[item.a].id, named[item.b].id) for _, item in result],
            next_cursor=next_cursor(result, page.limit, lambda item: str(item[0])),
        )

    async def ExplainTrust(self, request: pb.ExplainTrustRequest, context: Any) -> pb.TrustExplanation:
        result = await self._scores.explain(request.device_a, request.device_b, request.at)
        return social.explanation(result, request.device_a, request.device_b)

    async def ListPeers(self, request: pb.ListPeersRequest, context: Any) -> pb.ListPeersReply:
        result = await self._scores.peers(request.device_id, request.limit, request.at)
        return pb.ListPeersReply(peers=map(social.peer, result))

    async def GetMatrix(self, request: pb.GetMatrixRequest, context: Any) -> pb.TrustMatrix:
        weight = request.direct_weight if request.HasField("direct_weight") else None
        result, at, used = await self._scores.matrix(request.device_ids, request.at, weight, request.piece)
        return await asyncio.to_thread(social.matrix, result, request.device_ids, at, used)

    async def GetRelated(self, request: pb.GetRelatedRequest, context: Any) -> pb.GetRelatedReply:
        kinds = [word(RelationKind, kind) for kind in request.kinds]
        result = await self._relations.related(request.device_ids, kinds, request.at)
        return pb.GetRelatedReply(rows=[a for a, _ in result], columns=[b for _, b in result])

    async def GetDeclared(self, request: pb.GetDeclaredRequest, context: Any) -> pb.GetDeclaredReply:
        result = await self._relations.declared(request.device_ids)
        rows, columns, strengths = zip(*result.declarations, strict=True) if result.declarations else ((), (), ())
        return pb.GetDeclaredReply(owners=result.owners, rows=rows, columns=columns, strengths=strengths)

    async def GetGraph(self, request: pb.GetGraphRequest, context: Any) -> pb.TrustGraph:
        nodes, ties, at = await self._graphs.draw(request.device_ids, request.owner_id, request.least, request.at)
        return pb.TrustGraph(devices=map(messages.device, nodes), ties=map(social.tie, ties), at=at)

    async def GetHistory(self, request: pb.GetHistoryRequest, context: Any) -> pb.GetHistoryReply:
        result = await self._history.history(
            request.device_a, request.device_b, request.since, request.until, request.points
        )
        return pb.GetHistoryReply(points=map(social.point, result))

    async def ListLosses(self, request: pb.ListLossesRequest, context: Any) -> pb.ListLossesReply:
        result, named = await self._history.losses(request.device_id, request.since, request.limit)
        return pb.ListLossesReply(losses=[social.loss(item, named, *self._history.terms()) for item in result])

    async def Import(self, request_iterator: AsyncIterator[pb.ImportChunk], context: Any) -> pb.ImportReply:
        header, public, chunks = await social.read_import(request_iterator)
        return social.import_state(await self._imports.run(header, chunks, public=public))

    async def GetImport(self, request: pb.GetImportRequest, context: Any) -> pb.ImportReply:
        return social.import_state(await self._imports.get(request.name))

    async def WhatIf(self, request: pb.WhatIfRequest, context: Any) -> pb.WhatIfReply:
        answer = await self._questions.what_if(request.solver, request.input_json)
        return pb.WhatIfReply(output_json=answer)

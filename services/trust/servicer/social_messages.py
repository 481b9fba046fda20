"""Messages of the Trust service to and from the registry's records."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence

from coterie.records.enums import RelationKind
from coterie_api.trust.v1 import trust_pb2 as pb
from services.kit.rpc.enums import number, word
from services.trust.domain.matrices import Entries
from services.trust.domain.parameters import DAY_SECONDS, EvidenceRule, TrustParameters
from services.trust.domain.records import (
    DeviceRow,
    Friendship,
    ImportState,
    RecordedInteraction,
    RelationRow,
    SocialRelation,
)
from services.trust.domain.reports import PLATFORM, Reports
from services.trust.servicer import messages
from services.trust.usecases.directory import Entry
from services.trust.usecases.graphs import Tie
from services.trust.usecases.history import Loss, Point
from services.trust.usecases.imports import Chunk
from services.trust.usecases.scores import Explanation, Peer


def read_reports(items: Sequence[pb.Interaction]) -> Reports:
    """Reported interactions, column by column."""
    return Reports(
        ids=[item.id for item in items],
        devices_a=[item.device_a for item in items],
        devices_b=[item.device_b for item in items],
        positive=[item.positive for item in items],
        durations_seconds=[item.duration_seconds for item in items],
        at=[item.at for item in items],
        reporters=[item.reporter for item in items],
        kinds=[item.kind for item in items],
        notes=[item.note for item in items],
    )


def interaction(
    value: RecordedInteraction, named: Mapping[int, Entry], now: float, rule: EvidenceRule
) -> pb.Interaction:
    return pb.Interaction(
        id=value.id,
        device_a=named[value.low].id,
        device_b=named[value.high].id,
        positive=value.positive,
        duration_seconds=value.duration_seconds,
        at=value.at,
        reporter=named[value.reporter].id if value.reporter else PLATFORM,
        kind=value.kind,
        note=value.note,
        state=number(value.state(now, rule.confirm_seconds)),
    )


def relation(value: SocialRelation, a: str, b: str) -> pb.Relation:
    return pb.Relation(
        kind=number(RelationKind(value.kind)),
        a=a,
        b=b,
        strength=value.strength,
        because=value.because,
        since=value.since,
        confirmed=True,
    )


def declared(value: Friendship, a: str, b: str, strength: float) -> pb.Relation:
    """Convert an owner's new declaration."""
    return pb.Relation(
        kind=number(RelationKind.FRIENDSHIP),
        a=a,
        b=b,
        strength=value.strength if value.confirmed else strength,
        because="declared by both" if value.confirmed else "declared by one" if strength else "withdrawn",
        since=value.since,
        confirmed=value.confirmed,
    )


def friendship(value: Friendship, own_number: int, a: str, b: str) -> pb.Relation:
    """Convert a friendship as owner `a`, with number `own_number`, sees it."""
    own, other = value.low_strength, value.high_strength
    if own_number != value.low:
        own, other = other, own
    because = "declared by both" if own and other else "waits for the other owner" if own else "waits for this owner"
    return pb.Relation(
        kind=number(RelationKind.FRIENDSHIP),
        a=a,
        b=b,
        strength=value.strength or own or other,
        because=because,
        since=value.since,
        confirmed=value.confirmed,
    )


def explanation(value: Explanation, device_a: str, device_b: str) -> pb.TrustExplanation:
    return pb.TrustExplanation(
        device_a=device_a,
        device_b=device_b,
        at=value.at,
        direct=value.direct,
        indirect=value.indirect,
        trust=value.trust,
        positive_count=value.positive_count,
        negative_count=value.negative_count,
        positive_sum=value.positive_sum,
        negative_sum=value.negative_sum,
        last_at=value.last_at,
        path=[pb.Hop(from_device=hop.from_device, to_device=hop.to_device, direct=hop.direct) for hop in value.path],
        relations=[relation(item, device_a, device_b) for item in value.relations],
        text=value.text,
        unconfirmed_count=value.unconfirmed_count,
        rule=trust_rule(value.parameters, value.rule),
    )


def trust_rule(parameters: TrustParameters, rule: EvidenceRule) -> pb.TrustRule:
    rate = parameters.decay_rate
    return pb.TrustRule(
        halving_days=math.log(2.0) / rate / DAY_SECONDS if rate else 0.0,
        penalty=parameters.penalty,
        full_seconds=parameters.full_duration_seconds,
        direct_weight=parameters.direct_weight,
        prior_weight=rule.prior_weight,
        witness_cap=rule.witness_cap,
        pair_day=rule.pair_day,
        reporter_day=rule.reporter_day,
        meeting_window_seconds=rule.meeting_window_seconds,
        confirm_days=rule.confirm_seconds / DAY_SECONDS,
    )


def peer(value: Peer) -> pb.Peer:
    return pb.Peer(device_id=value.device_id, direct=value.direct, indirect=value.indirect, trust=value.trust)


def matrix(value: Entries, device_ids: Sequence[str], at: float, direct_weight: float) -> pb.TrustMatrix:
    return pb.TrustMatrix(
        device_ids=device_ids,
        at=at,
        rows=value.rows.tolist(),
        columns=value.columns.tolist(),
        direct=value.direct.tolist(),
        trust=value.trust.tolist(),
        direct_weight=direct_weight,
        next_piece=value.following,
    )


def tie(value: Tie) -> pb.Tie:
    return pb.Tie(
        device_a=value.device_a,
        device_b=value.device_b,
        direct=value.direct,
        relations=[number(RelationKind(kind)) for kind in value.relations],
    )


def point(value: Point) -> pb.HistoryPoint:
    return pb.HistoryPoint(at=value.at, direct=value.direct, count=value.count)


def loss(value: Loss, named: Mapping[int, Entry], now: float, rule: EvidenceRule) -> pb.Loss:
    return pb.Loss(
        device_a=named[value.low].id,
        device_b=named[value.high].id,
        before=value.before,
        after=value.after,
        because=[interaction(item, named, now, rule) for item in value.because],
    )


async def read_import(stream: AsyncIterator[pb.ImportChunk]) -> tuple[ImportState, bool, AsyncIterator[Chunk]]:
    """Return the header of an import, whether its owner is public, and its chunks of rows."""
    first = pb.ImportChunk()
    async for message in stream:
        first = message
        break
    header = first.header
    state = ImportState(header.name, header.owner_name, header.synthetic)
    return state, header.public, _read_chunks(first, stream)


async def _read_chunks(first: pb.ImportChunk, stream: AsyncIterator[pb.ImportChunk]) -> AsyncIterator[Chunk]:
    yield _read_chunk(first)
    async for message in stream:
        yield await asyncio.to_thread(_read_chunk, message)


def _read_chunk(message: pb.ImportChunk) -> Chunk:
    rows = message.rows
    acts = [row for row in rows if row.HasField("interaction")]
    return Chunk(
        lines=[row.line for row in rows],
        devices=[
            DeviceRow(row.line, messages.read_profile(row.device), row.owner_name)
            for row in rows
            if row.HasField("device")
        ],
        interactions=read_reports([row.interaction for row in acts]),
        interaction_lines=[row.line for row in acts],
        relations=[_read_relation(row.line, row.relation) for row in rows if row.HasField("relation")],
    )


def _read_relation(line: int, message: pb.Relation) -> RelationRow:
    kind = word(RelationKind, message.kind)
    return RelationRow(
        line=line,
        kind=kind,
        a=message.a,
        b=message.b,
        strength=message.strength,
        because=message.because,
        since=message.since,
    )


def import_state(value: ImportState) -> pb.ImportReply:
    return pb.ImportReply(
        last_line=value.last_line,
        devices=value.devices,
        interactions=value.interactions,
        relations=value.relations,
    )

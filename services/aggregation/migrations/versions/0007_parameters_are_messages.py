"""in the work of open rounds parameters are messages and what noise protects is an enum; they were text."""

import json

import sqlalchemy as sa
from alembic import op

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.kit.proto_json import adopt, former_text, take

revision = "0007"
down_revision = "0006"

_rounds = sa.table(
    "rounds", sa.column("task_id", sa.String), sa.column("number", sa.Integer), sa.column("state", sa.String)
)
_participations = sa.table(
    "participations",
    sa.column("task_id", sa.String),
    sa.column("round", sa.Integer),
    sa.column("device_id", sa.String),
    sa.column("work", sa.LargeBinary),
)


def upgrade() -> None:
    """Work of rounds that are over is never read again and stays as it is."""
    p, r = _participations.c, _rounds.c
    same = sa.and_(r.task_id == p.task_id, r.number == p.round)
    under_way = sa.select(p.task_id, p.round, p.device_id, p.work).join_from(_participations, _rounds, same)
    under_way = under_way.where(r.state.in_(("open", "closing", "settling")))
    connection = op.get_bind()
    for row in connection.execute(under_way).all():
        place = (p.task_id == row.task_id, p.round == row.round, p.device_id == row.device_id)
        connection.execute(_participations.update().where(*place).values(work=typed(row.work)))


def typed(work: bytes) -> bytes:
    """A work item of 0.1.0, its roles enums by now, with its parameters as a message."""
    item = pb.WorkItem.FromString(work)
    take(item.parameters, json.loads(former_text(item, 20) or "{}"))
    adopt(item, "privacy_unit", formerly=21)
    item.DiscardUnknownFields()
    for peer in item.peers:
        peer.DiscardUnknownFields()
    return item.SerializeToString()

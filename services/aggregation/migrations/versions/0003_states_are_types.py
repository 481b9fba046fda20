"""refused updates are a column, not the start of a note; roles in the work of open rounds are enums."""

import sqlalchemy as sa
from alembic import op

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.kit.proto_json import adopt

revision = "0003"
down_revision = "0002"

_rounds = sa.table(
    "rounds", sa.column("task_id", sa.String), sa.column("number", sa.Integer), sa.column("state", sa.String)
)
_participations = sa.table(
    "participations",
    sa.column("task_id", sa.String),
    sa.column("round", sa.Integer),
    sa.column("device_id", sa.String),
    sa.column("note", sa.Text),
    sa.column("refused", sa.Boolean),
    sa.column("work", sa.LargeBinary),
)


def upgrade() -> None:
    refused = sa.Column("refused", sa.Boolean(), nullable=False, server_default=sa.false())
    op.add_column("participations", refused)
    told = _participations.c.note.like("rejected: %")
    op.execute(_participations.update().where(told).values(refused=sa.true()))
    _rewrite_work()


def _rewrite_work() -> None:
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
    """A work item of 0.1.0 with its roles, which were words, as enums; what else it has stays for later versions."""
    item = pb.WorkItem.FromString(work)
    adopt(item, "role", formerly=4)
    for peer in item.peers:
        adopt(peer, "role", formerly=2)
    return item.SerializeToString()

"""what counts as evidence, and how much of it.

Earlier reports keep their meaning: an admin's and an import's are vouched for, the platform's are witnessed (their ids
begin with a task's), bad ones of a device count, and good ones of a device count where the other end reported the same
meeting. All that counted counts fully: days are measured from now on. The sums are made anew at the next start.
"""

import sqlalchemy as sa
from alembic import op

from services.trust.domain.confirmation import Reported, matches
from services.trust.domain.parameters import LIVE

revision = "0003"
down_revision = "0002"

_i = sa.table(
    "interactions",
    *(sa.column(name, sa.BigInteger) for name in ("number", "reporter", "pair")),
    *(sa.column(name, sa.Text) for name in ("id", "basis")),
    *(sa.column(name, sa.Double) for name in ("duration_seconds", "at", "share", "counted_seconds")),
    sa.column("positive", sa.Boolean),
)
_pairs = sa.table("pairs", sa.column("number", sa.BigInteger), sa.column("low", sa.BigInteger))
_SUMS = ("positive_weight", "negative_weight", "witnessed_sum", "witnessed_weight")


def upgrade() -> None:
    for name in _SUMS:
        op.add_column("pairs", sa.Column(name, sa.Double(), nullable=False, server_default="0"))
    op.add_column("interactions", sa.Column("basis", sa.Text(), nullable=False, server_default="admin"))
    op.add_column("interactions", sa.Column("share", sa.Double(), nullable=False, server_default="1"))
    op.add_column("interactions", sa.Column("counted_seconds", sa.Double(), nullable=False, server_default="0"))
    c = _i.c
    op.execute(_i.update().values(counted_seconds=c.duration_seconds))
    witnessed = (c.reporter == 0) & c.id.like("tsk\\_%.%", escape="\\")
    op.execute(_i.update().where(witnessed).values(basis="platform"))
    op.execute(_i.update().where(c.reporter > 0, sa.not_(c.positive)).values(basis="one"))
    waits = {"basis": "waiting", "share": 0.0, "counted_seconds": 0.0}
    op.execute(_i.update().where(c.reporter > 0, c.positive).values(waits))
    _confirm()
    op.create_index("ix_interactions_counted", "interactions", ["pair", "at"], **_where("share > 0"))
    op.create_index("ix_interactions_waiting", "interactions", ["pair", "at"], **_where("basis = 'waiting'"))
    against = _where("share > 0 AND basis = 'one'")
    op.create_index("ix_interactions_against", "interactions", ["reporter", "at"], **against)
    # Other settings than any: the sums of all pairs are made anew.
    op.execute("UPDATE social_version SET decay_rate = NULL")


def _where(condition: str) -> dict[str, sa.TextClause]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def _confirm() -> None:
    """Finds the meetings that both ends reported: the lower device's reports are held against the higher one's."""
    connection, c = op.get_bind(), _i.c
    good = sa.select(c.number, c.pair, c.at, c.duration_seconds).join_from(_i, _pairs, _pairs.c.number == c.pair)
    good = good.where(c.basis == "waiting").order_by(c.number)
    mine, theirs = (
        Reported.of(*(zip(*rows, strict=True) if rows else ([], [], [], [])))
        for rows in (
            connection.execute(good.where(side)).all()
            for side in (c.reporter == _pairs.c.low, c.reporter != _pairs.c.low)
        )
    )
    found = matches(mine, theirs, LIVE.meeting_window_seconds)
    for k, j in enumerate(found.tolist()):
        if j < 0:
            continue
        seconds = min(mine.durations_seconds[k].item(), theirs.durations_seconds[j].item())
        first, second = (mine.numbers[k].item(), theirs.numbers[j].item())[:: 1 if mine.at[k] < theirs.at[j] else -1]
        both = {"basis": "both", "share": 1.0, "counted_seconds": seconds}
        connection.execute(_i.update().where(c.number == first).values(both))
        connection.execute(_i.update().where(c.number == second).values(basis="half"))

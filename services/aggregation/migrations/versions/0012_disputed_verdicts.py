"""Verdicts of heads, and what members object to them with."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    for name, kind in (("judged_by", sa.String(40)), ("objection", sa.Text())):
        op.add_column("participations", sa.Column(name, kind, nullable=False, server_default=""))
    where = sa.text("objection <> ''")
    op.create_index(
        "participations_disputed", "participations", ["task_id"], postgresql_where=where, sqlite_where=where
    )

"""tasks say who may join; those from before are open."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("tasks", sa.Column("join_by", sa.String(8), nullable=False, server_default="open"))
    op.create_index("tasks_by_name", "tasks", ["name", "id"])
    op.create_table(
        "invitations",
        sa.Column("task_id", sa.String(40), sa.ForeignKey("tasks.id"), primary_key=True),
        sa.Column("invited", sa.String(40), primary_key=True),
        sa.Index("invitations_by_invited", "invited"),
    )

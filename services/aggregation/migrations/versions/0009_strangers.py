"""devices that will not share with others of their task."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "strangers",
        sa.Column("task_id", sa.String(40), sa.ForeignKey("tasks.id"), primary_key=True),
        sa.Column("device_id", sa.String(40), primary_key=True),
        sa.Column("stranger_id", sa.String(40), primary_key=True),
    )

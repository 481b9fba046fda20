"""updates that a task's rule set aside, with the reason."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("participations", sa.Column("aside", sa.Text(), nullable=False, server_default=""))

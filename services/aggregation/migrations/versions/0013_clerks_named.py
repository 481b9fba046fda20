"""Whom devices take as clerks of secure sums, and who will not be one."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("enrolments", sa.Column("clerks", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("enrolments", sa.Column("no_clerk", sa.Boolean(), nullable=False, server_default=sa.false()))

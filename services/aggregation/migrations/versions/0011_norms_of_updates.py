"""Norms of delivered updates, and the longest a round takes."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("participations", sa.Column("norm", sa.Double(), nullable=False, server_default="0"))
    op.add_column("rounds", sa.Column("norm_bounds", sa.JSON(), nullable=False, server_default="{}"))

"""A number on the lease of who closes a round."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("rounds", sa.Column("fence", sa.Integer(), nullable=False, server_default="0"))

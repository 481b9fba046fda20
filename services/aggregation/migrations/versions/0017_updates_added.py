"""What an event tells of a cell: how many updates its station, or the platform in its place, added up."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("events", sa.Column("cell", sa.String(64), nullable=False, server_default=""))
    op.add_column("events", sa.Column("updates", sa.Integer(), nullable=False, server_default="0"))

"""friendship is what both owners declare; friendships of before were taken as meant by both."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    for name in ("low_strength", "high_strength"):
        op.add_column("friendships", sa.Column(name, sa.Double(), nullable=False, server_default="0"))
    op.execute("UPDATE friendships SET low_strength = strength, high_strength = strength")

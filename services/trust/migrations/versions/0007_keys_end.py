"""API keys may end."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("keys", sa.Column("expires_at", sa.Double()))

"""Links to owners' browsers, and what they decided."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("keys", sa.Column("link_id", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "links",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("device_id", sa.Text, nullable=False, index=True),
        sa.Column("token_digest", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("claimed_at", sa.Double(), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("browser_key", sa.LargeBinary, nullable=False),
        sa.Column("proof", sa.LargeBinary, nullable=False),
        sa.Column("signed_in_milliseconds", sa.BigInteger, nullable=False),
        sa.Column("note", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "decisions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("device_id", sa.Text, nullable=False),
        sa.Column("link_id", sa.Text, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("signature", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Index("ix_decisions_device", "device_id", "id"),
    )

"""Owners, devices, enrolment tokens, API keys, audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "owners",
        sa.Column("number", Number, primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("sharing", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_table(
        "devices",
        sa.Column("number", Number, primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("owner_number", Number, sa.ForeignKey("owners.number"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("brand", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("x_metres", sa.Double),
        sa.Column("y_metres", sa.Double),
        sa.Column("seconds_per_sample", sa.Double, nullable=False),
        sa.Column("link_class", sa.Text, nullable=False),
        sa.Column("seconds_per_megabyte", sa.Double, nullable=False),
        sa.Column("memory_bytes", sa.BigInteger, nullable=False),
        sa.Column("signing_key", sa.LargeBinary, unique=True),
        sa.Column("sealing_key", sa.LargeBinary),
        sa.Column("key_version", sa.Integer, nullable=False),
        sa.Column("token_id", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("registered_at", sa.Double, nullable=False),
        sa.Column("last_seen_at", sa.Double, nullable=False),
        sa.UniqueConstraint("owner_number", "name"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("owner_number", Number, sa.ForeignKey("owners.number"), nullable=False),
        sa.Column("uses_left", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False, index=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("owner_id", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("revoked_at", sa.Double),
        sa.Index("ix_keys_role_name", "role", "name"),
    )
    op.create_table(
        "audit",
        sa.Column("number", Number, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("act", sa.Text, nullable=False),
        sa.Column("object", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Index("ix_audit_subject", "subject", "number"),
        sa.Index("ix_audit_act", "act", "number"),
    )


def downgrade() -> None:
    for table in ("audit", "keys", "tokens", "devices", "owners"):
        op.drop_table(table)

"""Tables of the trust registry. Rows refer to each other by whole numbers; the outside world sees text ids."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

# SQLite counts up only a column typed exactly INTEGER.
Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Real: sa.Double[float] = sa.Double()

owners = sa.Table(
    "owners",
    metadata,
    sa.Column("number", Number, primary_key=True, autoincrement=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("sharing", sa.Text, nullable=False),
    sa.Column("created_at", Real, nullable=False),
)

devices = sa.Table(
    "devices",
    metadata,
    sa.Column("number", Number, primary_key=True, autoincrement=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("owner_number", Number, sa.ForeignKey("owners.number"), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("brand", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("x_metres", Real),
    sa.Column("y_metres", Real),
    sa.Column("seconds_per_sample", Real, nullable=False),
    sa.Column("link_class", sa.Text, nullable=False),
    sa.Column("seconds_per_megabyte", Real, nullable=False),
    sa.Column("memory_bytes", sa.BigInteger, nullable=False),
    sa.Column("signing_key", sa.LargeBinary, unique=True),
    sa.Column("sealing_key", sa.LargeBinary),
    sa.Column("key_version", sa.Integer, nullable=False),
    sa.Column("token_id", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("registered_at", Real, nullable=False),
    sa.Column("last_seen_at", Real, nullable=False),
    sa.UniqueConstraint("owner_number", "name"),
)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("owner_number", Number, sa.ForeignKey("owners.number"), nullable=False),
    sa.Column("uses_left", sa.Integer, nullable=False),
    sa.Column("created_at", Real, nullable=False),
    sa.Column("expires_at", Real, nullable=False),
)

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("owner_id", sa.Text, nullable=False),
    sa.Column("created_at", Real, nullable=False),
    sa.Column("revoked_at", Real),
    sa.Index("ix_keys_role_name", "role", "name"),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("number", Number, primary_key=True, autoincrement=True),
    sa.Column("at", Real, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("act", sa.Text, nullable=False),
    sa.Column("object", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Index("ix_audit_subject", "subject", "number"),
    sa.Index("ix_audit_act", "act", "number"),
)

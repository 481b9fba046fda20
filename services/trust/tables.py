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
    sa.Index("ix_devices_make", "kind", "brand", "model"),
    sa.Index("ix_devices_name", "name"),
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

# A pair of devices that ever interacted, low number first, and its history in a few numbers (domain/evidence.py).
# Numbers count up from 1 without gaps, so that a pair's number is its place in the registry's arrays.
pairs = sa.Table(
    "pairs",
    metadata,
    sa.Column("number", Number, primary_key=True, autoincrement=False),
    sa.Column("low", Number, sa.ForeignKey("devices.number"), nullable=False),
    sa.Column("high", Number, sa.ForeignKey("devices.number"), nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("positive_count", sa.BigInteger, nullable=False),
    sa.Column("positive_sum", Real, nullable=False),
    sa.Column("negative_sum", Real, nullable=False),
    sa.Column("reference_at", Real, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False, index=True),
    sa.UniqueConstraint("low", "high"),
    sa.Index("ix_pairs_high", "high"),
)

interactions = sa.Table(
    "interactions",
    metadata,
    sa.Column("number", Number, primary_key=True, autoincrement=True),
    # A device's number, or 0 for the platform.
    sa.Column("reporter", Number, nullable=False),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("pair", Number, sa.ForeignKey("pairs.number"), nullable=False),
    sa.Column("positive", sa.Boolean, nullable=False),
    sa.Column("duration_seconds", Real, nullable=False),
    sa.Column("at", Real, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.UniqueConstraint("reporter", "id"),
    sa.Index("ix_interactions_pair_at", "pair", "at"),
)

# One row: counts the transactions that changed pairs, so that caches know what they have missed.
social_version = sa.Table(
    "social_version",
    metadata,
    sa.Column("version", sa.BigInteger, nullable=False),
    # What the sums of `pairs` were made with; other settings mean they are made anew at start.
    sa.Column("decay_rate", Real),
    sa.Column("full_duration_seconds", Real),
)

relations = sa.Table(
    "relations",
    metadata,
    sa.Column("number", Number, primary_key=True, autoincrement=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("low", Number, sa.ForeignKey("devices.number"), nullable=False),
    sa.Column("high", Number, sa.ForeignKey("devices.number"), nullable=False),
    sa.Column("strength", Real, nullable=False),
    sa.Column("because", sa.Text, nullable=False),
    sa.Column("since", Real, nullable=False),
    # "derived" rows are made anew by every derivation, "imported" ones stay.
    sa.Column("source", sa.Text, nullable=False),
    sa.UniqueConstraint("low", "high", "kind"),
    sa.Index("ix_relations_high", "high"),
)

friendships = sa.Table(
    "friendships",
    metadata,
    sa.Column("low", Number, sa.ForeignKey("owners.number"), primary_key=True),
    sa.Column("high", Number, sa.ForeignKey("owners.number"), primary_key=True),
    sa.Column("strength", Real, nullable=False),
    sa.Column("since", Real, nullable=False),
    sa.Index("ix_friendships_high", "high"),
)

imports = sa.Table(
    "imports",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("owner_name", sa.Text, nullable=False),
    sa.Column("synthetic", sa.Boolean, nullable=False),
    sa.Column("last_line", sa.BigInteger, nullable=False),
    sa.Column("devices", sa.BigInteger, nullable=False),
    sa.Column("interactions", sa.BigInteger, nullable=False),
    sa.Column("relations", sa.BigInteger, nullable=False),
    sa.Column("started_at", Real, nullable=False),
    sa.Column("changed_at", Real, nullable=False),
)

"""Tables of the trust registry. Rows refer to each other by whole numbers; other services see text ids."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()

# SQLite auto-increments only a column typed exactly INTEGER.
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
    # A municipality or the like, with public vehicles; admins set it.
    sa.Column("public", sa.Boolean, nullable=False, server_default=sa.false()),
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
    sa.Column("expires_at", Real),
    sa.Column("link_id", sa.Text, nullable=False, server_default=""),
    sa.Index("ix_keys_role_name", "role", "name"),
)

# Browsers of owners, and their decisions for a device (usecases/pairing.py).
links = sa.Table(
    "links",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("device_id", sa.Text, nullable=False, index=True),
    sa.Column("token_digest", sa.LargeBinary, nullable=False),
    sa.Column("created_at", Real, nullable=False),
    sa.Column("expires_at", Real, nullable=False),
    sa.Column("claimed_at", Real, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("browser_key", sa.LargeBinary, nullable=False),
    sa.Column("proof", sa.LargeBinary, nullable=False),
    sa.Column("signed_in_milliseconds", sa.BigInteger, nullable=False),
    sa.Column("note", sa.LargeBinary, nullable=False),
)

decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("device_id", sa.Text, nullable=False),
    sa.Column("link_id", sa.Text, nullable=False),
    sa.Column("at", Real, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("signature", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Index("ix_decisions_device", "device_id", "id"),
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
    sa.Column("hash", sa.Text, nullable=False, server_default=""),
    sa.Index("ix_audit_subject", "subject", "number"),
    sa.Index("ix_audit_act", "act", "number"),
)

# One row: the head of the audit log's chain (domain/audit_chain.py).
audit_head = sa.Table(
    "audit_head",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("entries", sa.BigInteger, nullable=False),
    sa.Column("number", Number, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.CheckConstraint("id = 1"),
)

# A pair of devices that ever interacted, low number first, and the running sums of its history (domain/evidence.py).
# Numbers start at 1 without gaps: a pair's number is its place in the registry's arrays.
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
    sa.Column("positive_weight", Real, nullable=False, server_default="0"),
    sa.Column("negative_weight", Real, nullable=False, server_default="0"),
    sa.Column("witnessed_sum", Real, nullable=False, server_default="0"),
    sa.Column("witnessed_weight", Real, nullable=False, server_default="0"),
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
    # Why it may count (domain/records.Basis), which share of it does, in [0, 1], and for how long: a meeting that both
    # ends reported counts once, with the shorter of their durations.
    sa.Column("basis", sa.Text, nullable=False, server_default="admin"),
    sa.Column("share", Real, nullable=False, server_default="1"),
    sa.Column("counted_seconds", Real, nullable=False, server_default="0"),
    sa.UniqueConstraint("reporter", "id"),
    sa.Index("ix_interactions_pair_at", "pair", "at"),
)
# Partial indexes for what counts in a day, what waits for confirmation, and one reporter's bad reports of a day: none
# of them reads reports that do not count, whose number has no bound.
_i = interactions.c
sa.Index(
    "ix_interactions_counted", _i.pair, _i.at, sqlite_where=sa.text("share > 0"), postgresql_where=sa.text("share > 0")
)
sa.Index(
    "ix_interactions_waiting",
    _i.pair,
    _i.at,
    sqlite_where=sa.text("basis = 'waiting'"),
    postgresql_where=sa.text("basis = 'waiting'"),
)
sa.Index(
    "ix_interactions_against",
    _i.reporter,
    _i.at,
    sqlite_where=sa.text("share > 0 AND basis = 'one'"),
    postgresql_where=sa.text("share > 0 AND basis = 'one'"),
)

# One row: the number of transactions that changed pairs, by which caches notice what they have missed.
social_version = sa.Table(
    "social_version",
    metadata,
    sa.Column("version", sa.BigInteger, nullable=False),
    # The parameters of the sums in `pairs`; other settings recompute them at start.
    sa.Column("decay_rate", Real),
    sa.Column("full_duration_seconds", Real),
)


def _evidence() -> list[sa.Column[Any]]:
    """Columns of a pair's running sums, as in `pairs`."""
    whole = [sa.Column(name, sa.BigInteger, nullable=False) for name in ("count", "positive_count")]
    names = ("positive_sum", "negative_sum", "positive_weight", "negative_weight", "witnessed_sum", "witnessed_weight")
    sums = [sa.Column(name, Real, nullable=False) for name in (*names, "reference_at")]
    return [*whole, *sums]


# What devices of two owners did with each other, over all pairs: low number first, and both in one key.
owner_records = sa.Table(
    "owner_records",
    metadata,
    sa.Column("key", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("low", Number, sa.ForeignKey("owners.number"), nullable=False, index=True),
    sa.Column("high", Number, sa.ForeignKey("owners.number"), nullable=False, index=True),
    *_evidence(),
)

# What the pair of a new device inherited of its owners' record; part of its sums from `given_at` on.
inheritances = sa.Table(
    "inheritances",
    metadata,
    sa.Column("pair", Number, sa.ForeignKey("pairs.number"), primary_key=True, autoincrement=False),
    sa.Column("given_at", Real, nullable=False),
    *_evidence(),
)

# Counted meetings and common tasks of a pair towards a relation of some kind (domain/encounters.py).
encounters = sa.Table(
    "encounters",
    metadata,
    sa.Column("pair", Number, sa.ForeignKey("pairs.number"), primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("times", sa.BigInteger, nullable=False),
    sa.Column("last_stop", Real, nullable=False),
    # Ids of the last common tasks, a JSON list.
    sa.Column("tasks", sa.Text, nullable=False),
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
    # "derived" rows follow from reports, "imported" ones stay.
    sa.Column("source", sa.Text, nullable=False),
    sa.UniqueConstraint("low", "high", "kind"),
    sa.Index("ix_relations_high", "high"),
)

friendships = sa.Table(
    "friendships",
    metadata,
    sa.Column("low", Number, sa.ForeignKey("owners.number"), primary_key=True),
    sa.Column("high", Number, sa.ForeignKey("owners.number"), primary_key=True),
    # The weaker of the two owners' declarations, 0 while only one has declared.
    sa.Column("strength", Real, nullable=False),
    sa.Column("since", Real, nullable=False),
    sa.Column("low_strength", Real, nullable=False, server_default="0"),
    sa.Column("high_strength", Real, nullable=False, server_default="0"),
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

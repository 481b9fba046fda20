"""Pairs, interactions, relations, friendships, imports."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "pairs",
        sa.Column("number", Number, primary_key=True, autoincrement=False),
        sa.Column("low", Number, sa.ForeignKey("devices.number"), nullable=False),
        sa.Column("high", Number, sa.ForeignKey("devices.number"), nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("positive_count", sa.BigInteger, nullable=False),
        sa.Column("positive_sum", sa.Double, nullable=False),
        sa.Column("negative_sum", sa.Double, nullable=False),
        sa.Column("reference_at", sa.Double, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, index=True),
        sa.UniqueConstraint("low", "high"),
        sa.Index("ix_pairs_high", "high"),
    )
    op.create_table(
        "interactions",
        sa.Column("number", Number, primary_key=True, autoincrement=True),
        sa.Column("reporter", Number, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("pair", Number, sa.ForeignKey("pairs.number"), nullable=False),
        sa.Column("positive", sa.Boolean, nullable=False),
        sa.Column("duration_seconds", sa.Double, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.UniqueConstraint("reporter", "id"),
        sa.Index("ix_interactions_pair_at", "pair", "at"),
    )
    version = op.create_table(
        "social_version",
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("decay_rate", sa.Double),
        sa.Column("full_duration_seconds", sa.Double),
    )
    op.bulk_insert(version, [{"version": 0}])
    op.create_table(
        "relations",
        sa.Column("number", Number, primary_key=True, autoincrement=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("low", Number, sa.ForeignKey("devices.number"), nullable=False),
        sa.Column("high", Number, sa.ForeignKey("devices.number"), nullable=False),
        sa.Column("strength", sa.Double, nullable=False),
        sa.Column("because", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.UniqueConstraint("low", "high", "kind"),
        sa.Index("ix_relations_high", "high"),
    )
    op.create_table(
        "friendships",
        sa.Column("low", Number, sa.ForeignKey("owners.number"), primary_key=True),
        sa.Column("high", Number, sa.ForeignKey("owners.number"), primary_key=True),
        sa.Column("strength", sa.Double, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Index("ix_friendships_high", "high"),
    )
    op.create_table(
        "imports",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("owner_name", sa.Text, nullable=False),
        sa.Column("synthetic", sa.Boolean, nullable=False),
        sa.Column("last_line", sa.BigInteger, nullable=False),
        sa.Column("devices", sa.BigInteger, nullable=False),
        sa.Column("interactions", sa.BigInteger, nullable=False),
        sa.Column("relations", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
    )
    op.create_index("ix_devices_make", "devices", ["kind", "brand", "model"])
    op.create_index("ix_devices_name", "devices", ["name"])


def downgrade() -> None:
    op.drop_index("ix_devices_make", "devices")
    op.drop_index("ix_devices_name", "devices")
    for table in ("imports", "friendships", "relations", "social_version", "interactions", "pairs"):
        op.drop_table(table)

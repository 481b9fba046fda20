"""what devices of two owners did together, as the owners' record, and what new devices began with of it.

The records are made with the sums of pairs at the next start.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _evidence() -> list[sa.Column[float]]:
    whole = [sa.Column(name, sa.BigInteger, nullable=False) for name in ("count", "positive_count")]
    names = ("positive_sum", "negative_sum", "positive_weight", "negative_weight", "witnessed_sum", "witnessed_weight")
    sums = [sa.Column(name, sa.Double, nullable=False) for name in (*names, "reference_at")]
    return [*whole, *sums]


def upgrade() -> None:
    op.create_table(
        "owner_records",
        sa.Column("key", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("low", Number, sa.ForeignKey("owners.number"), nullable=False, index=True),
        sa.Column("high", Number, sa.ForeignKey("owners.number"), nullable=False, index=True),
        *_evidence(),
    )
    op.create_table(
        "inheritances",
        sa.Column("pair", Number, sa.ForeignKey("pairs.number"), primary_key=True, autoincrement=False),
        sa.Column("given_at", sa.Double, nullable=False),
        *_evidence(),
    )
    op.execute("UPDATE social_version SET decay_rate = NULL")

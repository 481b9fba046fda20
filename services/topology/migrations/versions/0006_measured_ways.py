"""what devices measured of their ways to cells, whose names are longer than devices' ids: round trip and throughput."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    with op.batch_alter_table("links") as links:
        links.add_column(sa.Column("round_trip_seconds", sa.Double, nullable=False, server_default="0"))
        links.add_column(sa.Column("bytes_per_second", sa.Double, nullable=False, server_default="0"))
        for end in ("device_a", "device_b"):
            links.alter_column(end, existing_type=sa.String(40), type_=sa.String(64), existing_nullable=False)

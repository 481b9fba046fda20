"""base stations that are processes of their own, and what they are asked."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "stations",
        sa.Column("cell_id", sa.String(64), primary_key=True),
        sa.Column("token_digest", sa.String(64), nullable=False),
        sa.Column("ends_at", sa.Double, nullable=False),
    )
    op.create_table(
        "station_questions",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("cell_id", sa.String(64), nullable=False),
        sa.Column("asked_at", sa.Double, nullable=False),
        sa.Column("ends_at", sa.Double, nullable=False),
        sa.Column("taken", sa.Boolean, nullable=False),
        sa.Column("question", sa.LargeBinary, nullable=False),
        sa.Column("answer", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_station_questions_cell_id", "station_questions", ["cell_id"])

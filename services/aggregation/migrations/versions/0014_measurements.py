"""What devices and publishers measured of model versions, and which is the best."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "measurements",
        sa.Column("task_id", sa.String(40), primary_key=True),
        sa.Column("line", sa.Integer(), primary_key=True),
        sa.Column("version", sa.Integer(), primary_key=True),
        sa.Column("device_id", sa.String(40), primary_key=True),
        sa.Column("samples", sa.Double(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("measured_at", sa.Double(), nullable=False),
    )
    op.add_column("models", sa.Column("metrics", sa.JSON(), nullable=False, server_default="{}"))
    op.add_column("models", sa.Column("devices", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("models", sa.Column("samples", sa.Double(), nullable=False, server_default="0"))
    op.add_column("models", sa.Column("evaluated", sa.JSON(), nullable=False, server_default="{}"))
    op.add_column("enrolments", sa.Column("measures", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("tasks", sa.Column("best_version", sa.Integer(), nullable=False, server_default="-1"))

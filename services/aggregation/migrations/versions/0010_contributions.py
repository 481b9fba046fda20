"""what devices contributed, and the worths it is reckoned from."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "worths",
        sa.Column("task_id", sa.String(40), primary_key=True),
        sa.Column("round", sa.Integer(), primary_key=True),
        sa.Column("coalition", sa.String(2600), primary_key=True),
        sa.Column("worth", sa.Double(), nullable=False),
    )
    op.create_table(
        "contributions",
        sa.Column("task_id", sa.String(40), primary_key=True),
        sa.Column("round", sa.Integer(), primary_key=True),
        sa.Column("device_id", sa.String(40), primary_key=True),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("error", sa.Double(), nullable=False),
    )

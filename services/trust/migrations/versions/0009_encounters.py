"""Meetings and common tasks counted as they come; owners that are public."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("owners", sa.Column("public", sa.Boolean, nullable=False, server_default=sa.false()))
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "encounters",
        sa.Column("pair", number, sa.ForeignKey("pairs.number"), primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("times", sa.BigInteger, nullable=False),
        sa.Column("last_stop", sa.Double(), nullable=False),
        sa.Column("tasks", sa.Text, nullable=False),
    )

"""the round whose model an update was made from, and whether its bytes are stored still."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("participations", sa.Column("base", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("participations", sa.Column("kept", sa.Boolean(), nullable=False, server_default=sa.false()))

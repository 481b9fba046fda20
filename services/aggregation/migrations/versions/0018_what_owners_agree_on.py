"""What most owners' devices have of a model version, and whose the enrolled devices are."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column("enrolments", sa.Column("owner_id", sa.String(40), nullable=False, server_default=""))
    op.add_column("models", sa.Column("agreed", sa.JSON(), nullable=False, server_default="{}"))

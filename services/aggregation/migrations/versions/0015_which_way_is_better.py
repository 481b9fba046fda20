"""What devices say of which way their figures get better."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("enrolments", sa.Column("better_json", sa.Text(), nullable=False, server_default=""))

"""Privacy charges say which worlds they compare; old ones get what their mechanism meant."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

Id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
MEANT = """CASE WHEN mechanism IN ('laplace', 'zcdp') OR (mechanism = 'gaussian' AND unit = 'example')
           THEN 'replaced' ELSE 'left-out' END"""


def upgrade() -> None:
    # The history is append-only, also for migrations: an empty adjacency there is one that was not told.
    op.add_column("privacy_charges", sa.Column("adjacency", sa.Text, nullable=False, server_default=""))
    op.rename_table("privacy_totals", "privacy_totals_of_0001")
    _create_totals()
    op.execute(
        "INSERT INTO privacy_totals "
        "(device_id, task_id, unit, adjacency, mechanism, parameter, sampling_rate, amount) "
        f"SELECT device_id, task_id, unit, {MEANT}, mechanism, parameter, sampling_rate, amount "
        "FROM privacy_totals_of_0001"
    )
    op.drop_table("privacy_totals_of_0001")


def _create_totals() -> None:
    op.create_table(
        "privacy_totals",
        sa.Column("device_id", Id, primary_key=True),
        sa.Column("task_id", Id, primary_key=True),
        sa.Column("unit", sa.Text, primary_key=True),
        sa.Column("adjacency", sa.Text, primary_key=True),
        sa.Column("mechanism", sa.Text, primary_key=True),
        sa.Column("parameter", sa.Double, primary_key=True),
        sa.Column("sampling_rate", sa.Double, primary_key=True),
        sa.Column("amount", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )

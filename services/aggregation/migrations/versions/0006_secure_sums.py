"""secure sums: sittings, their clerks, masked updates and shares."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "sittings",
        sa.Column("task_id", sa.String(40), primary_key=True),
        sa.Column("round", sa.Integer(), primary_key=True),
        sa.Column("cohort", sa.Integer(), primary_key=True),
        sa.Column("sitting", sa.Integer(), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("deadline_at", sa.Double(), nullable=False),
        sa.Column("clip_norm", sa.Double(), nullable=False),
        sa.Column("noise_multiplier", sa.Double(), nullable=False),
        sa.Column("heaviest", sa.Double(), nullable=False),
        sa.Column("participants", sa.Text(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False, server_default=""),
        sa.Column("candidates", sa.Text(), nullable=False, server_default=""),
        sa.Column("asked", sa.JSON(), nullable=False),
        sa.Column("survivors", sa.Text(), nullable=False, server_default=""),
        sa.Column("digest", sa.String(64), nullable=False, server_default=""),
        sa.Column("opened", sa.String(64), nullable=False, server_default=""),
        sa.Column("reason", sa.Text(), nullable=False, server_default=""),
    )
    op.create_table(
        "clerks",
        sa.Column("task_id", sa.String(40), primary_key=True),
        sa.Column("round", sa.Integer(), primary_key=True),
        sa.Column("cohort", sa.Integer(), primary_key=True),
        sa.Column("sitting", sa.Integer(), primary_key=True),
        sa.Column("device_id", sa.String(40), primary_key=True),
        sa.Column("owner_id", sa.String(40), nullable=False),
        sa.Column("signing_key", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("called_at", sa.Double(), nullable=False),
        sa.Column("session_key", sa.String(64), nullable=False, server_default=""),
        sa.Column("offer", sa.String(128), nullable=False, server_default=""),
        sa.Column("mustered", sa.String(64), nullable=False, server_default=""),
        sa.Column("ready", sa.JSON(), nullable=False),
        sa.Column("faults", sa.JSON(), nullable=False),
        sa.Column("agreement", sa.String(128), nullable=False, server_default=""),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("told", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.create_index("clerks_by_device", "clerks", ["device_id", "told"])
    op.create_table(
        "masked_updates",
        sa.Column("task_id", sa.String(40), primary_key=True),
        sa.Column("round", sa.Integer(), primary_key=True),
        sa.Column("cohort", sa.Integer(), primary_key=True),
        sa.Column("sitting", sa.Integer(), primary_key=True),
        sa.Column("device_id", sa.String(40), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("masked_digest", sa.String(64), nullable=False),
        sa.Column("root", sa.String(64), nullable=False),
        sa.Column("letter_key", sa.String(64), nullable=False),
        sa.Column("signature", sa.String(128), nullable=False),
        sa.Column("letters", sa.JSON(), nullable=False),
    )
    op.create_index("masked_updates_by_digest", "masked_updates", ["digest"])
    op.create_table(
        "shares",
        sa.Column("task_id", sa.String(40), primary_key=True),
        sa.Column("round", sa.Integer(), primary_key=True),
        sa.Column("cohort", sa.Integer(), primary_key=True),
        sa.Column("sitting", sa.Integer(), primary_key=True),
        sa.Column("share", sa.Integer(), primary_key=True),
        sa.Column("device_id", sa.String(40), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False, server_default=""),
    )

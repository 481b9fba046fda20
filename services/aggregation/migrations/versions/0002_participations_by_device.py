"""A device's rounds in a task, without reading everybody's."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_index("participations_by_device", "participations", ["task_id", "device_id", "round"])

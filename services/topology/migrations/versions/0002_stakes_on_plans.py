"""what a plan was played for, and what everybody is worth alone, as fields of the plan and not of its details."""

import json

import sqlalchemy as sa
from alembic import op

from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.proto_json import former_text

revision = "0002"
down_revision = "0001"

_plans = sa.table(
    "plans", sa.column("task_id", sa.String), sa.column("version", sa.Integer), sa.column("plan", sa.LargeBinary)
)


def upgrade() -> None:
    connection = op.get_bind()
    for row in connection.execute(sa.select(_plans)).all():
        plan = pb.Plan.FromString(row.plan)
        details = json.loads(former_text(plan, 7) or "{}")
        if "stakes" not in details:
            continue
        plan.stakes.CopyFrom(pb.Stakes(**details["stakes"]))
        for seat in plan.seats:
            seat.alone = details["alone"][seat.device_id]
        place = (_plans.c.task_id == row.task_id) & (_plans.c.version == row.version)
        connection.execute(_plans.update().where(place).values(plan=plan.SerializeToString()))

"""roles in plans are enums; they were words."""

import sqlalchemy as sa
from alembic import op

from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.proto_json import adopt

revision = "0003"
down_revision = "0002"

_plans = sa.table(
    "plans", sa.column("task_id", sa.String), sa.column("version", sa.Integer), sa.column("plan", sa.LargeBinary)
)


def upgrade() -> None:
    connection = op.get_bind()
    for place in connection.execute(sa.select(_plans.c.task_id, _plans.c.version)).all():
        where = (_plans.c.task_id == place.task_id) & (_plans.c.version == place.version)
        plan = pb.Plan.FromString(connection.execute(sa.select(_plans.c.plan).where(where)).scalar_one())
        for seat in plan.seats:
            adopt(seat, "role", formerly=2)
        connection.execute(_plans.update().where(where).values(plan=plan.SerializeToString()))

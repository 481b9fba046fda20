"""details of plans and the radio of trainings are messages, learner and penalty enums; they were text."""

import base64
import json

import sqlalchemy as sa
from alembic import op

from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.proto_json import adopt, former_text, take

revision = "0004"
down_revision = "0003"

_plans = sa.table(
    "plans", sa.column("task_id", sa.String), sa.column("version", sa.Integer), sa.column("plan", sa.LargeBinary)
)
_policies = sa.table("policies", sa.column("id", sa.String), sa.column("request", sa.LargeBinary))
_DETAILS = {"clusters": "cluster_details", "mesh": "mesh_details", "cells": "cell_details"}


def upgrade() -> None:
    connection = op.get_bind()
    for place in connection.execute(sa.select(_plans.c.task_id, _plans.c.version)).all():
        where = (_plans.c.task_id == place.task_id) & (_plans.c.version == place.version)
        plan = connection.execute(sa.select(_plans.c.plan).where(where)).scalar_one()
        connection.execute(_plans.update().where(where).values(plan=typed_plan(plan)))
    for row in connection.execute(sa.select(_policies)).all():
        changed = _policies.update().where(_policies.c.id == row.id)
        connection.execute(changed.values(request=typed_job(row.request)))


def typed_plan(data: bytes) -> bytes:
    """A plan of 0.1.0, its roles enums by now, with its details as a message."""
    plan = pb.Plan.FromString(data)
    text = former_text(plan, 7)
    if text and plan.topology in _DETAILS:
        take(getattr(plan, _DETAILS[plan.topology]), json.loads(text))
    plan.DiscardUnknownFields()
    return plan.SerializeToString()


def typed_job(data: bytes) -> bytes:
    """A training's job, JSON with messages in it, whose request has no more text in it."""
    job = json.loads(data)
    request = pb.TrainPolicyRequest.FromString(base64.b64decode(job["request"]))
    text = former_text(request, 7)
    if text:
        take(request.radio, json.loads(text))
    adopt(request, "learner", formerly=1)
    adopt(request, "penalty", formerly=4)
    request.DiscardUnknownFields()
    return json.dumps(job | {"request": base64.b64encode(request.SerializeToString()).decode()}).encode()

"""Tables of the topology planner."""

from __future__ import annotations

import sqlalchemy as sa

from coterie.records.enums import PolicyLearner, PolicyState
from services.kit.database.rows import EnumColumn

metadata = sa.MetaData()

plans = sa.Table(
    "plans",
    metadata,
    sa.Column("task_id", sa.String(40), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("plan", sa.LargeBinary, nullable=False),
)

plan_keys = sa.Table(
    "plan_keys",
    metadata,
    sa.Column("task_id", sa.String(40), primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
)

links = sa.Table(
    "links",
    metadata,
    sa.Column("task_id", sa.String(40), primary_key=True),
    sa.Column("device_a", sa.String(64), primary_key=True),
    sa.Column("device_b", sa.String(64), primary_key=True),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("round_trip_seconds", sa.Double, nullable=False, server_default="0"),
    sa.Column("bytes_per_second", sa.Double, nullable=False, server_default="0"),
    sa.Column("measured_at", sa.Double, nullable=False),
)

cells = sa.Table(
    "cells",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("cell", sa.LargeBinary, nullable=False),
)

stations = sa.Table(
    "stations",
    metadata,
    sa.Column("cell_id", sa.String(64), primary_key=True),
    sa.Column("token_digest", sa.String(64), nullable=False),
    sa.Column("ends_at", sa.Double, nullable=False),
)

station_questions = sa.Table(
    "station_questions",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("cell_id", sa.String(64), nullable=False, index=True),
    sa.Column("asked_at", sa.Double, nullable=False),
    sa.Column("ends_at", sa.Double, nullable=False),
    sa.Column("taken", sa.Boolean, nullable=False),
    sa.Column("question", sa.LargeBinary, nullable=False),
    sa.Column("answer", sa.LargeBinary, nullable=False),
)

policies = sa.Table(
    "policies",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("learner", EnumColumn(PolicyLearner, 16), nullable=False),
    sa.Column("layout", sa.String(64), nullable=False),
    sa.Column("state", EnumColumn(PolicyState, 16), nullable=False),
    sa.Column("progress", sa.Double, nullable=False),
    sa.Column("reward", sa.Double, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("request", sa.LargeBinary, nullable=False),
)

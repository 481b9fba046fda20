"""Tables of the aggregation server."""

from __future__ import annotations

import sqlalchemy as sa

from coterie.records.words import (
    EnrolmentState,
    EventKind,
    Form,
    LetterKind,
    ParticipationState,
    Role,
    RoundState,
    TaskState,
)
from services.kit.words import WordColumn

metadata = sa.MetaData()

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("publisher", sa.String(64), nullable=False),
    sa.Column("name", sa.String(100), nullable=False),
    sa.Column("specification", sa.JSON, nullable=False),
    sa.Column("state", WordColumn(TaskState, 16), nullable=False, index=True),
    sa.Column("reason", sa.Text, nullable=False, default=""),
    sa.Column("round", sa.Integer, nullable=False, default=0),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("started_at", sa.Double, nullable=False, default=0.0),
    sa.Column("ended_at", sa.Double, nullable=False, default=0.0),
    sa.Column("released", sa.Boolean, nullable=False, default=False),
    sa.Column("revision", sa.BigInteger, nullable=False, default=0),
    sa.UniqueConstraint("publisher", "name"),
)

enrolments = sa.Table(
    "enrolments",
    metadata,
    sa.Column("task_id", sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("device_id", sa.String(40), primary_key=True),
    sa.Column("state", WordColumn(EnrolmentState, 16), nullable=False),
    sa.Column("samples", sa.BigInteger, nullable=False),
    sa.Column("non_iid", sa.Double, nullable=False, default=0.0),
    sa.Column("enrolled_at", sa.Double, nullable=False),
    sa.Index("enrolments_by_device", "device_id", "state"),
)

rounds = sa.Table(
    "rounds",
    metadata,
    sa.Column("task_id", sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("state", WordColumn(RoundState, 16), nullable=False),
    sa.Column("quorum", sa.Integer, nullable=False),
    sa.Column("scale", sa.Integer, nullable=False),
    sa.Column("opened_at", sa.Double, nullable=False),
    sa.Column("deadline_at", sa.Double, nullable=False),
    sa.Column("done_at", sa.Double, nullable=False, default=0.0),
    sa.Column("plan_version", sa.Integer, nullable=False),
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("model_digests", sa.JSON, nullable=False),
    sa.Column("closer", sa.String(40), nullable=False, default=""),
)

participations = sa.Table(
    "participations",
    metadata,
    sa.Column("task_id", sa.String(40), primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("device_id", sa.String(40), primary_key=True),
    sa.Column("owner_id", sa.String(40), nullable=False),
    sa.Column("role", WordColumn(Role, 16), nullable=False),
    sa.Column("state", WordColumn(ParticipationState, 16), nullable=False),
    sa.Column("work", sa.LargeBinary, nullable=False),
    sa.Column("samples", sa.BigInteger, nullable=False),
    sa.Column("note", sa.Text, nullable=False, default=""),
    sa.Column("refused", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("aside", sa.Text, nullable=False, server_default=""),
    sa.Column("digest", sa.String(64), nullable=False, default=""),
    sa.Column("form", WordColumn(Form, 8), nullable=False, default=""),
    sa.Column("weight", sa.Double, nullable=False, default=0.0),
    sa.Column("payload_bytes", sa.BigInteger, nullable=False, default=0),
    sa.Column("delivered_at", sa.Double, nullable=False, default=0.0),
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("model_index", sa.Integer, nullable=False, default=0),
    sa.Column("budget", sa.Double, nullable=False, default=0.0),
    sa.Column("privacy", sa.JSON, nullable=False),
    sa.Column("members", sa.JSON, nullable=False),
    sa.Column("replica", sa.String(40), nullable=False, default=""),
    sa.Index("participations_by_digest", "digest"),
    sa.Index("participations_by_device", "task_id", "device_id", "round"),
)

partials = sa.Table(
    "partials",
    metadata,
    sa.Column("task_id", sa.String(40), primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("line", sa.Integer, primary_key=True),
    sa.Column("replica", sa.String(40), primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("weight_units", sa.String(40), nullable=False),
    sa.Column("devices", sa.JSON, nullable=False),
)

models = sa.Table(
    "models",
    metadata,
    sa.Column("task_id", sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("line", sa.Integer, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False, index=True),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
)

uploads = sa.Table(
    "uploads",
    metadata,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("uploader", sa.String(64), primary_key=True),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
)

letters = sa.Table(
    "letters",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("task_id", sa.String(40), nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("plan_version", sa.Integer, nullable=False),
    sa.Column("sender", sa.String(40), nullable=False),
    sa.Column("recipient", sa.String(40), nullable=False),
    sa.Column("kind", WordColumn(LetterKind, 16), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("sent_at", sa.Double, nullable=False),
    sa.UniqueConstraint("task_id", "round", "recipient", "sender", "kind", "plan_version"),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("task_id", sa.String(40), nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("kind", WordColumn(EventKind, 40), nullable=False),
    sa.Column("round", sa.Integer, nullable=False, default=0),
    sa.Column("device_id", sa.String(40), nullable=False, default=""),
    sa.Column("message", sa.Text, nullable=False),
    sa.Index("events_by_task", "task_id", "number"),
)

replicas = sa.Table(
    "replicas",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("seen_at", sa.Double, nullable=False),
)

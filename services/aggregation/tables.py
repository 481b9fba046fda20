"""Tables of the aggregation server."""

from __future__ import annotations

import sqlalchemy as sa

from coterie.records.enums import (
    ClerkState,
    EnrolmentState,
    EventKind,
    Form,
    JoinBy,
    LetterKind,
    ParticipationState,
    Role,
    RoundState,
    SumState,
    TaskState,
)
from coterie.records.privacy import PrivacyClaim
from services.kit.database.rows import EnumColumn, RecordsColumn

metadata = sa.MetaData()

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("publisher", sa.String(64), nullable=False),
    sa.Column("name", sa.String(100), nullable=False),
    sa.Column("specification", sa.JSON, nullable=False),
    sa.Column("state", EnumColumn(TaskState, 16), nullable=False, index=True),
    sa.Column("reason", sa.Text, nullable=False, default=""),
    sa.Column("round", sa.Integer, nullable=False, default=0),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("started_at", sa.Double, nullable=False, default=0.0),
    sa.Column("ended_at", sa.Double, nullable=False, default=0.0),
    sa.Column("released", sa.Boolean, nullable=False, default=False),
    sa.Column("revision", sa.BigInteger, nullable=False, default=0),
    sa.Column("join_by", EnumColumn(JoinBy, 8), nullable=False, server_default="open"),
    sa.Column("best_version", sa.Integer, nullable=False, server_default="-1"),
    sa.UniqueConstraint("publisher", "name"),
    sa.Index("tasks_by_name", "name", "id"),
)

invitations = sa.Table(
    "invitations",
    metadata,
    sa.Column("task_id", sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("invited", sa.String(40), primary_key=True),
    sa.Index("invitations_by_invited", "invited"),
)
"""Owners or devices that may join a task that is not open."""

enrolments = sa.Table(
    "enrolments",
    metadata,
    sa.Column("task_id", sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("device_id", sa.String(40), primary_key=True),
    sa.Column("state", EnumColumn(EnrolmentState, 16), nullable=False),
    sa.Column("samples", sa.BigInteger, nullable=False),
    sa.Column("non_iid", sa.Double, nullable=False, default=0.0),
    sa.Column("enrolled_at", sa.Double, nullable=False),
    sa.Column("clerks", sa.JSON, nullable=False, default=list),
    sa.Column("no_clerk", sa.Boolean, nullable=False, default=False),
    sa.Column("measures", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("better_json", sa.Text, nullable=False, server_default=""),
    sa.Column("owner_id", sa.String(40), nullable=False, server_default=""),
    sa.Index("enrolments_by_device", "device_id", "state"),
)

strangers = sa.Table(
    "strangers",
    metadata,
    sa.Column("task_id", sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("device_id", sa.String(40), primary_key=True),
    sa.Column("stranger_id", sa.String(40), primary_key=True),
)

rounds = sa.Table(
    "rounds",
    metadata,
    sa.Column("task_id", sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("state", EnumColumn(RoundState, 16), nullable=False),
    sa.Column("quorum", sa.Integer, nullable=False),
    sa.Column("scale", sa.Integer, nullable=False),
    sa.Column("opened_at", sa.Double, nullable=False),
    sa.Column("deadline_at", sa.Double, nullable=False),
    sa.Column("done_at", sa.Double, nullable=False, default=0.0),
    sa.Column("plan_version", sa.Integer, nullable=False),
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("model_digests", sa.JSON, nullable=False),
    sa.Column("closer", sa.String(40), nullable=False, default=""),
    sa.Column("norm_bounds", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("fence", sa.Integer, nullable=False, server_default="0"),
)

participations = sa.Table(
    "participations",
    metadata,
    sa.Column("task_id", sa.String(40), primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("device_id", sa.String(40), primary_key=True),
    sa.Column("owner_id", sa.String(40), nullable=False),
    sa.Column("role", EnumColumn(Role, 16), nullable=False),
    sa.Column("state", EnumColumn(ParticipationState, 16), nullable=False),
    sa.Column("work", sa.LargeBinary, nullable=False),
    sa.Column("samples", sa.BigInteger, nullable=False),
    sa.Column("note", sa.Text, nullable=False, default=""),
    sa.Column("refused", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("excluded_because", sa.Text, nullable=False, server_default=""),
    sa.Column("digest", sa.String(64), nullable=False, default=""),
    sa.Column("form", EnumColumn(Form, 8), nullable=False, default=""),
    sa.Column("weight", sa.Double, nullable=False, default=0.0),
    sa.Column("payload_bytes", sa.BigInteger, nullable=False, default=0),
    sa.Column("delivered_at", sa.Double, nullable=False, default=0.0),
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("model_index", sa.Integer, nullable=False, default=0),
    sa.Column("budget", sa.Double, nullable=False, default=0.0),
    sa.Column("privacy", RecordsColumn(PrivacyClaim), nullable=False),
    sa.Column("members", sa.JSON, nullable=False),
    sa.Column("replica", sa.String(40), nullable=False, default=""),
    sa.Column("base", sa.Integer, nullable=False, server_default="0"),
    sa.Column("is_stored", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("norm", sa.Double, nullable=False, server_default="0"),
    sa.Column("judged_by", sa.String(40), nullable=False, server_default=""),
    sa.Column("objection", sa.Text, nullable=False, server_default=""),
    sa.Index("participations_by_digest", "digest"),
    sa.Index("participations_by_device", "task_id", "device_id", "round"),
)
sa.Index(
    "participations_disputed",
    participations.c.task_id,
    postgresql_where=participations.c.objection != "",
    sqlite_where=participations.c.objection != "",
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

sum_sessions = sa.Table(
    "sum_sessions",
    metadata,
    sa.Column("task_id", sa.String(40), primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("cohort", sa.Integer, primary_key=True),
    sa.Column("session_number", sa.Integer, primary_key=True),
    sa.Column("state", EnumColumn(SumState, 16), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("since", sa.Double, nullable=False),
    sa.Column("deadline_at", sa.Double, nullable=False),
    sa.Column("clip_norm", sa.Double, nullable=False),
    sa.Column("noise_multiplier", sa.Double, nullable=False),
    sa.Column("heaviest", sa.Double, nullable=False),
    sa.Column("participants", sa.Text, nullable=False),
    sa.Column("terms", sa.Text, nullable=False, server_default=""),
    sa.Column("candidates", sa.Text, nullable=False, server_default=""),
    sa.Column("asked", sa.JSON, nullable=False),
    sa.Column("survivors", sa.Text, nullable=False, server_default=""),
    sa.Column("digest", sa.String(64), nullable=False, server_default=""),
    sa.Column("opened", sa.String(64), nullable=False, server_default=""),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
)

clerks = sa.Table(
    "clerks",
    metadata,
    sa.Column("task_id", sa.String(40), primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("cohort", sa.Integer, primary_key=True),
    sa.Column("session_number", sa.Integer, primary_key=True),
    sa.Column("device_id", sa.String(40), primary_key=True),
    sa.Column("owner_id", sa.String(40), nullable=False),
    sa.Column("signing_key", sa.String(64), nullable=False),
    sa.Column("state", EnumColumn(ClerkState, 16), nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("selected_at", sa.Double, nullable=False),
    sa.Column("session_key", sa.String(64), nullable=False, server_default=""),
    sa.Column("offer", sa.String(128), nullable=False, server_default=""),
    sa.Column("checked_list", sa.String(64), nullable=False, server_default=""),
    sa.Column("ready", sa.JSON, nullable=False),
    sa.Column("faults", sa.JSON, nullable=False),
    sa.Column("commit_signature", sa.String(128), nullable=False, server_default=""),
    sa.Column("answer", sa.JSON, nullable=False),
    sa.Column("forget_sent", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Index("clerks_by_device", "device_id", "forget_sent"),
)

masked_updates = sa.Table(
    "masked_updates",
    metadata,
    sa.Column("task_id", sa.String(40), primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("cohort", sa.Integer, primary_key=True),
    sa.Column("session_number", sa.Integer, primary_key=True),
    sa.Column("device_id", sa.String(40), primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("masked_digest", sa.String(64), nullable=False),
    sa.Column("root", sa.String(64), nullable=False),
    sa.Column("letter_key", sa.String(64), nullable=False),
    sa.Column("signature", sa.String(128), nullable=False),
    sa.Column("letters", sa.JSON, nullable=False),
    sa.Index("masked_updates_by_digest", "digest"),
)

shares = sa.Table(
    "shares",
    metadata,
    sa.Column("task_id", sa.String(40), primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("cohort", sa.Integer, primary_key=True),
    sa.Column("session_number", sa.Integer, primary_key=True),
    sa.Column("share", sa.Integer, primary_key=True),
    sa.Column("device_id", sa.String(40), nullable=False),
    sa.Column("asked_at", sa.Double, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False, server_default=""),
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
    sa.Column("metrics", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("devices", sa.Integer, nullable=False, server_default="0"),
    sa.Column("samples", sa.Double, nullable=False, server_default="0"),
    sa.Column("evaluated", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("agreed", sa.JSON, nullable=False, server_default="{}"),
)

measurements = sa.Table(
    "measurements",
    metadata,
    sa.Column("task_id", sa.String(40), primary_key=True),
    sa.Column("line", sa.Integer, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("device_id", sa.String(40), primary_key=True),
    sa.Column("samples", sa.Double, nullable=False),
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("measured_at", sa.Double, nullable=False),
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
    sa.Column("kind", EnumColumn(LetterKind, 16), nullable=False),
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
    sa.Column("kind", EnumColumn(EventKind, 40), nullable=False),
    sa.Column("round", sa.Integer, nullable=False, default=0),
    sa.Column("device_id", sa.String(40), nullable=False, default=""),
    sa.Column("message", sa.Text, nullable=False),
    sa.Index("events_by_task", "task_id", "number"),
)

worths = sa.Table(
    "worths",
    metadata,
    sa.Column("task_id", sa.String(40), primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("coalition", sa.String(2600), primary_key=True),
    sa.Column("worth", sa.Double, nullable=False),
)

contributions = sa.Table(
    "contributions",
    metadata,
    sa.Column("task_id", sa.String(40), primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("device_id", sa.String(40), primary_key=True),
    sa.Column("value", sa.Double, nullable=False),
    sa.Column("error", sa.Double, nullable=False),
)

replicas = sa.Table(
    "replicas",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("seen_at", sa.Double, nullable=False),
)

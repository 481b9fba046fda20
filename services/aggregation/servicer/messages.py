"""Records to messages and back: names are the same on both sides, so most of it is by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from coterie.records.base import OpenEnum
from coterie.records.enums import Form, JoinBy, LetterKind, ParticipationState, PrivacyUnit, RoundMode
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.domain.measurements import Measurement
from services.aggregation.domain.records import (
    Contribution,
    Delivery,
    Enrolment,
    Evaluation,
    Event,
    Letter,
    MeasuredTask,
    Model,
    Participation,
    ReplayedRound,
    RoundView,
    TaskView,
)
from services.aggregation.domain.stopping import Stop
from services.aggregation.domain.tasks import TaskSpecification
from services.kit.rpc.claims import read_claim
from services.kit.rpc.enums import number, word
from services.kit.rpc.parameters import canonical_text, from_struct, struct_of

_WORDS = {"privacy_unit": PrivacyUnit.DEVICE, "join_by": JoinBy.OPEN, "mode": RoundMode.SYNCHRONOUS}
"""Words of a specification, each with what it is unless it is given."""
_OTHERWISE = ("parameters_json", "stop", *_WORDS)
"""Fields that are of another kind in the message."""
_DEFAULTS = {field.name: field.default for field in fields(TaskSpecification) if field.name not in _OTHERWISE}


def specification_from(message: pb.TaskSpecification) -> TaskSpecification:
    """Zero and empty fields take the specification's defaults; `max_attempts` −1 means one attempt only."""
    values: dict[str, Any] = {name: getattr(message, name) for name in _DEFAULTS}
    values |= {"model_digests": tuple(message.model_digests), "invited": tuple(message.invited)}
    for name in (
        "quorum",
        "round_seconds",
        "max_attempts",
        "min_devices",
        "training_json",
        "rule",
    ):
        values[name] = values[name] or _DEFAULTS[name]
    values["max_attempts"] = max(values["max_attempts"], 1)
    values |= {name: word(type(usual), getattr(message, name)) or usual for name, usual in _WORDS.items()}
    return TaskSpecification(
        **values, parameters_json=canonical_text(from_struct(message.parameters)), stop=_stop_from(message)
    )


def _stop_from(message: pb.TaskSpecification) -> Stop | None:
    if not message.HasField("stop"):
        return None
    stop = message.stop
    return Stop(stop.metric, stop.at if stop.HasField("at") else None, stop.patience, stop.better)


def specification_to(spec: TaskSpecification) -> pb.TaskSpecification:
    values = {name: getattr(spec, name) for name in _DEFAULTS}
    values |= {name: number(getattr(spec, name)) for name in _WORDS}
    stop = None if spec.stop is None else pb.Stop(**_values(spec.stop) | {"better": spec.stop.direction})
    return pb.TaskSpecification(**values, parameters=struct_of(spec.parameters_json), stop=stop)


def task(view: TaskView) -> pb.Task:
    record = view.task
    return pb.Task(
        id=record.id,
        publisher=record.publisher,
        specification=specification_to(record.specification),
        state=number(record.state),
        reason=record.reason,
        round=record.round,
        enrolled=view.enrolled,
        created_at=record.created_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
        model_digests=view.model_digests,
        last_event=view.last_event,
        best_version=record.best_version if record.best_version >= 0 else None,
        better=view.better,
    )


def round_(view: RoundView) -> pb.Round:
    record = view.round
    return pb.Round(
        task_id=record.task_id,
        number=record.number,
        attempt=record.attempt,
        state=number(record.state),
        participants=view.participants,
        delivered=view.delivered,
        disputed=view.disputed,
        quorum=record.quorum,
        opened_at=record.opened_at,
        deadline_at=record.deadline_at,
        done_at=record.done_at,
        plan_version=record.plan_version,
        metrics=record.metrics,
        model_digests=record.model_digests,
    )


def participation(record: Participation) -> pb.Participation:
    return pb.Participation(
        device_id=record.device_id,
        role=number(record.role),
        state=number(record.state),
        weight=record.weight,
        metrics=record.metrics,
        delivered_at=record.delivered_at,
        payload_bytes=record.payload_bytes,
        note=record.note,
        excluded_because=record.excluded_because,
        judged_by=record.judged_by,
        objection=record.objection,
        model_index=record.model_index,
        round=record.round,
        base=record.base,
    )


def replayed_round(record: ReplayedRound) -> pb.ReplayedRound:
    return pb.ReplayedRound(**_values(record), same=record.same)


def evaluation(record: Evaluation) -> pb.Evaluation:
    return pb.Evaluation(**_values(record))


def contribution(record: Contribution) -> pb.Contribution:
    return pb.Contribution(**_values(record))


def enrolment(record: Enrolment) -> pb.Enrolment:
    """Without whom it takes as clerks: that is between the device and the choice of clerks."""
    private = ("clerks", "no_clerk", "better_json", "owner_id")
    return pb.Enrolment(**{name: value for name, value in _values(record).items() if name not in private})


def event(record: Event) -> pb.Event:
    return pb.Event(**_values(record))


def model(record: Model) -> pb.Model:
    return pb.Model(**_values(record))


def measurement(record: Measurement) -> pb.Measurement:
    names = ("device_id", "samples", "metrics", "measured_at")
    return pb.Measurement(**{name: getattr(record, name) for name in names})


def measured_task(record: MeasuredTask) -> pb.MeasuredTask:
    return pb.MeasuredTask(**_values(record))


def letter(record: Letter) -> pb.Letter:
    return pb.Letter(**_values(record))


def letter_from(message: pb.Letter) -> Letter:
    values = {field.name: getattr(message, field.name) for field in fields(Letter)}
    return Letter(**values | {"kind": word(LetterKind, message.kind)})


def delivery_from(message: pb.SubmitUpdateRequest) -> Delivery:
    return Delivery(
        task_id=message.task_id,
        round=message.round,
        device_id=message.device_id,
        digest=message.digest,
        size_bytes=message.size_bytes,
        form=word(Form, message.form or words.FORM_MEAN),
        weight=message.weight,
        metrics=dict(message.metrics),
        model_index=message.model_index,
        budget=message.budget,
        privacy=tuple(read_claim(charge) for charge in message.privacy),
        members=tuple(
            {
                "device_id": m.device_id,
                "outcome": word(ParticipationState, m.outcome),
                "note": m.note,
                "weight": m.weight,
            }
            for m in message.members
        ),
        base=message.round,
        public_metrics=message.public_metrics,
        terms=message.sum.terms,
        signature=message.sum.signature,
    )


def _values(record: Any) -> dict[str, Any]:
    result = ((field.name, getattr(record, field.name)) for field in fields(record))
    return {name: number(value) if isinstance(value, OpenEnum) else value for name, value in result}

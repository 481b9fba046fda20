"""Tasks, enrolments, plans, rounds, events, models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from coterie.parameters.registry import schema
from services.gateway.schemas.base import (
    MOST_INT64,
    Amount,
    Body,
    Digest,
    Essay,
    Finite,
    Fraction,
    Id,
    Int32,
    Money,
    Name,
    Object,
    OpenEnum,
    Prose,
)

Axis = Annotated[OpenEnum, Field(max_length=50, examples=["star"])]
"""The name of a preset, topology, privacy or incentive: the aggregation service checks that it is installed."""


class StopRule(Body):
    """When a task stops before its last round: one of `at` and `patience`, or both."""

    model_config = ConfigDict(json_schema_extra={"example": {"metric": "accuracy", "at": 0.95, "patience": 5}})

    metric: Annotated[OpenEnum, Field(min_length=1, max_length=64)]
    """Watched metric: that of the publisher's evaluator if it reports one, else the devices' agreed value (`agreed` of
    a version), which needs reports of three devices of three owners, or of all if fewer take part."""
    at: Finite | None = None
    """Stop once a model version reaches this."""
    patience: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Stop after this number of versions without improvement; 0 = never."""
    better: Literal["up", "down", ""] = ""
    """Direction of improvement; empty means down for a loss or an error, else up."""


class ModelMetrics(Body):
    """Metrics of a model version."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"line": 0, "metrics": {"accuracy": 0.91, "loss": 0.3, "samples": 360}}}
    )

    line: Int32 = 0
    """Model line."""
    metrics: Annotated[dict[OpenEnum, Finite], Field(default_factory=dict, max_length=32)]
    """Metrics by name; "samples" is the number of samples behind the others. A device that may not report any sends
    none."""
    public_metrics: bool = False
    """Whether they reveal nothing of private data; a task with noise refuses a device's other metrics."""


class NewTask(Body):
    """Specification of a task: a preset or the three axes, and the rounds."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "name": "digits",
                "preset": "fedavg",
                "model_digests": ["0a" * 32],
                "rounds": 10,
                "min_devices": 3,
                "quorum": 0.8,
                "round_seconds": 120,
                "training": {"epochs": 1, "batch_size": 32, "learning_rate": 0.1},
                "auto_start": True,
                "description": "Recognise handwritten digits",
            }
        }
    )

    name: Name
    preset: Axis = ""
    """Empty when the axes are given."""
    topology: Axis = ""
    """Empty = the preset's."""
    privacy: Axis = ""
    incentive: Axis = ""
    rule: Annotated[OpenEnum, Field(max_length=100, examples=["nnm+trimmed-mean"])] = ""
    """How a round's updates become a step of the model; empty means "mean". Its parameters stand under "rule" in
    `parameters`."""
    mode: Literal["synchronous", "asynchronous", ""] = ""
    """Whether rounds wait for their devices, or step once a buffer of possibly stale updates is full; empty means
    "synchronous". Its parameters stand under "asynchronous" in `parameters`: `buffer`, `staleness_exponent`,
    `staleness_limit`."""
    keep_rounds: Annotated[int, Field(ge=-1, le=100_000)] = 0
    """Number of rounds whose updates stay stored for a replay; -1 means none, 0 means none of a synchronous task and
    100 of an asynchronous one."""
    model_digests: Annotated[list[Digest], Field(default_factory=list, max_length=64)]
    """SHA-256 of the uploaded initial models, one per model line."""
    rounds: Annotated[int, Field(ge=1, le=100_000)] = 1
    min_devices: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Fewest devices a round may close with."""
    quorum: Fraction = 0.0
    """Fraction of a round's participants that must deliver; 0 means 0.8."""
    round_seconds: Amount = 0.0
    """Maximum seconds of a round; 0 means 600."""
    max_attempts: Annotated[int, Field(ge=-1, le=1000)] = 0
    """Number of retries of a round that misses its quorum; -1 means none, 0 means 3."""
    max_devices: Int32 = 0
    """Most devices per round, chosen at random; 0 = all."""
    fraction: Fraction = 0.0
    """Share of the devices that take part in a round, chosen at random, at least `min_devices`; 0 = all."""
    stop: StopRule | None = None
    """When the task stops before its last round; left out, never."""
    training: Object = Field(default_factory=dict)
    """Training configuration for devices, at most 16 KiB as JSON."""
    parameters: Annotated[Object, WithJsonSchema(schema())] = Field(default_factory=dict)
    """Parameters of the axes, at most 64 KiB as JSON."""
    escrow_microcredits: Money = 0
    seed: Annotated[int, Field(ge=-MOST_INT64, le=MOST_INT64)] = 0
    """Seed of every random choice the platform makes for this task."""
    privacy_unit: Literal["example", "device", ""] = ""
    """What noise protects."""
    auto_start: bool = False
    """Start automatically once `min_devices` have enrolled."""
    description: Essay = ""
    """Text for devices' owners; in a survey, the question."""
    join_by: Literal["open", "owners", "devices", ""] = ""
    """Who may join, and see the task and its models: any device ("open", which empty means), devices of the owners in
    `invited`, or the devices in `invited`."""
    invited: Annotated[list[Id], Field(default_factory=list, max_length=1000)]
    """Ids of the owners or devices that may join."""


class Worths(Body):
    """Worth of evaluated models."""

    model_config = ConfigDict(json_schema_extra={"example": {"model_digest": "0a" * 32, "worths": [0.11, 0.94]}})

    model_digest: Digest
    """Digest of the file of models."""
    worths: Annotated[list[Finite], Field(min_length=1, max_length=1000)]
    """One for each model, in order; higher is better."""


class Cancellation(Body):
    """Why a task is cancelled."""

    model_config = ConfigDict(json_schema_extra={"example": {"why": "the question was wrong"}})

    why: Prose = ""


class NewEnrolment(Body):
    """A device's enrolment in a task."""

    model_config = ConfigDict(json_schema_extra={"example": {"samples": 150, "non_iid": 0.3}})

    samples: Annotated[int, Field(ge=1, le=1_000_000_000)]
    non_iid: Amount = 0.0
    """Declared degree of non-IID data; 0 = unknown."""
    clerks: Annotated[list[Id], Field(default_factory=list, max_length=1000)]
    """Devices that it accepts as clerks of secure sums; empty means all."""
    no_clerk: bool = False
    """Whether its owner refuses the role of a clerk of secure sums."""
    measures: bool = False
    """Whether it measures models without training them on request (`measure` of a work item)."""
    better: Annotated[dict[OpenEnum, Literal["up", "down"]], Field(default_factory=dict, max_length=32)]
    """Direction of improvement of its metrics where it differs from the default: losses and errors down, others up."""


class CellChange(Body):
    """A base station."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "x_metres": 0,
                "y_metres": 0,
                "blocks": 4,
                "power_watts": 0.1,
                "bandwidth_hertz": 180000,
                "delay_limit_seconds": 0.5,
                "radius_metres": 250,
            }
        }
    )

    x_metres: Finite
    y_metres: Finite
    blocks: Annotated[int, Field(ge=1, le=10_000)]
    power_watts: Amount
    bandwidth_hertz: Amount
    delay_limit_seconds: Amount
    models: Annotated[list[Int32], Field(default_factory=list, max_length=64)]
    radius_metres: Amount


class NewPolicy(Body):
    """A scheduling policy to train for the current cells."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"learner": "vdn", "seed": 1, "penalty": "dynamic", "users": 20, "models": 2}}
    )

    learner: Literal["vdn", "iql"] = "vdn"
    network: Literal["pointer", "set"] = "pointer"
    """"set" is the paper's: one value per set of devices, over all sets."""
    seed: Annotated[int, Field(ge=-MOST_INT64, le=MOST_INT64)] = 0
    steps: Int32 = 0
    """0 means the default."""
    penalty: Literal["dynamic", "fixed"] = "dynamic"
    users: Annotated[int, Field(ge=1, le=100_000)]
    models: Annotated[int, Field(ge=1, le=64)] = 1
    radio: Object = Field(default_factory=dict)
    """Radio constants of its tasks, as in their "topology" parameters."""


class Link(Body):
    """A measured link."""

    device_a: Id
    device_b: Id
    seconds: Amount
    """Seconds to transfer one message of the task."""
    round_trip_seconds: Amount = 0.0
    """Of a link to a cell: seconds of an empty request and reply; 0 = not measured."""
    bytes_per_second: Amount = 0.0
    """Of a link to a cell: throughput beyond the round trip; 0 = not measured, then `seconds` counts."""


class Links(Body):
    """Measured links."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"links": [{"device_a": "dev_01jd0d", "device_b": "dev_01jd0f", "seconds": 0.25}]}
        }
    )

    links: Annotated[list[Link], Field(min_length=1, max_length=10_000)]

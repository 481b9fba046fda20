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
"""The name of a preset, topology, privacy or incentive: the aggregation service knows which are installed."""


class StopRule(Body):
    """When a task stops before its last round: one of `at` and `patience`, or both."""

    model_config = ConfigDict(json_schema_extra={"example": {"metric": "accuracy", "at": 0.95, "patience": 5}})

    metric: Annotated[OpenEnum, Field(min_length=1, max_length=64)]
    """Figure that is watched: the publisher's evaluator's where it tells one, else what devices of most owners
    have (`agreed` of a version), told by at least three devices of three owners, or by all where fewer take part."""
    at: Finite | None = None
    """Stop once a model version reaches this."""
    patience: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Stop when no version was better than the best for this many; 0 = never."""
    better: Literal["up", "down", ""] = ""
    """Which way is better; empty means down for a loss or an error, else up."""


class Figures(Body):
    """What was measured of a model version."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"line": 0, "metrics": {"accuracy": 0.91, "loss": 0.3, "samples": 360}}}
    )

    line: Int32 = 0
    """Model line."""
    metrics: Annotated[dict[OpenEnum, Finite], Field(default_factory=dict, max_length=32)]
    """Figures by name; "samples" is how many samples the others were measured on. A device that has nothing it may tell
    says so with none."""
    public_metrics: bool = False
    """Whether they tell nothing of private data; where a task promises noise, a device's others are refused."""


class NewTask(Body):
    """What a publisher asks for: a preset, or the three axes, and how to run the rounds."""

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
    """Whether rounds wait for their devices, or step as soon as a buffer of updates is full, however stale; empty means
    "synchronous". Its parameters stand under "asynchronous" in `parameters`: `buffer`, `staleness_exponent`,
    `staleness_limit`."""
    keep_rounds: Annotated[int, Field(ge=-1, le=100_000)] = 0
    """Rounds whose updates stay stored, for a replay; -1 means none, 0 means none of a synchronous task and 100 of an
    asynchronous one."""
    model_digests: Annotated[list[Digest], Field(default_factory=list, max_length=64)]
    """SHA-256 of each initial model, uploaded before; one per model line."""
    rounds: Annotated[int, Field(ge=1, le=100_000)] = 1
    min_devices: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Fewest devices a round may close with."""
    quorum: Fraction = 0.0
    """Fraction of a round's participants that must deliver; 0 means 0.8."""
    round_seconds: Amount = 0.0
    """Seconds a round stays open at most; 0 means 600."""
    max_attempts: Annotated[int, Field(ge=-1, le=1000)] = 0
    """Times a round is opened again when its quorum is missed; -1 means never, 0 means 3."""
    max_devices: Int32 = 0
    """Most devices per round, chosen at random; 0 = all."""
    fraction: Fraction = 0.0
    """Share of the devices that take part in a round, chosen at random, at least `min_devices`; 0 = all."""
    stop: StopRule | None = None
    """When the task stops before its last round; left out, never."""
    training: Object = Field(default_factory=dict)
    """What devices are told about training, at most 16 KiB as JSON."""
    parameters: Annotated[Object, WithJsonSchema(schema())] = Field(default_factory=dict)
    """Parameters of the axes, at most 64 KiB as JSON."""
    escrow_microcredits: Money = 0
    seed: Annotated[int, Field(ge=-MOST_INT64, le=MOST_INT64)] = 0
    """Seed of every random choice the platform makes for this task."""
    privacy_unit: Literal["example", "device", ""] = ""
    """What noise protects."""
    auto_start: bool = False
    """Start by itself as soon as `min_devices` have enrolled."""
    description: Essay = ""
    """What a device's owner reads before joining; the question, in a survey."""
    join_by: Literal["open", "owners", "devices", ""] = ""
    """Who may join, and see the task and its models: any device ("open", which empty means), devices of the owners in
    `invited`, or the devices in `invited`."""
    invited: Annotated[list[Id], Field(default_factory=list, max_length=1000)]
    """Ids of the owners or devices that may join."""


class Worths(Body):
    """What the models that were asked about are worth."""

    model_config = ConfigDict(json_schema_extra={"example": {"model_digest": "0a" * 32, "worths": [0.11, 0.94]}})

    model_digest: Digest
    """Of the file they came in."""
    worths: Annotated[list[Finite], Field(min_length=1, max_length=1000)]
    """One for each model, in order; higher is better."""


class Cancellation(Body):
    """Why a task is cancelled."""

    model_config = ConfigDict(json_schema_extra={"example": {"why": "the question was wrong"}})

    why: Prose = ""


class NewEnrolment(Body):
    """What a device brings to a task."""

    model_config = ConfigDict(json_schema_extra={"example": {"samples": 150, "non_iid": 0.3}})

    samples: Annotated[int, Field(ge=1, le=1_000_000_000)]
    non_iid: Amount = 0.0
    """Declared degree of non-IID data; 0 = unknown."""
    clerks: Annotated[list[Id], Field(default_factory=list, max_length=1000)]
    """Devices it would take as clerks of secure sums; none named = anybody."""
    no_clerk: bool = False
    """Whether its owner does not let it be a clerk of secure sums."""
    measures: bool = False
    """Whether it measures models without training them when asked (`measure` of a work item)."""
    better: Annotated[dict[OpenEnum, Literal["up", "down"]], Field(default_factory=dict, max_length=32)]
    """Which way its figures get better, for those whose names do not say so: losses and errors down, others up."""


class CellChange(Body):
    """A base station as it should be."""

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
    """A scheduling policy to train for the present cells."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"learner": "vdn", "seed": 1, "penalty": "dynamic", "users": 20, "models": 2}}
    )

    learner: Literal["vdn", "iql"] = "vdn"
    network: Literal["pointer", "set"] = "pointer"
    """"set" is the paper's: one value for each set of devices, which are all looked at."""
    seed: Annotated[int, Field(ge=-MOST_INT64, le=MOST_INT64)] = 0
    steps: Int32 = 0
    """0 means the default."""
    penalty: Literal["dynamic", "fixed"] = "dynamic"
    users: Annotated[int, Field(ge=1, le=100_000)]
    models: Annotated[int, Field(ge=1, le=64)] = 1
    radio: Object = Field(default_factory=dict)
    """Radio constants of the tasks it is for, as in their "topology" parameters."""


class Link(Body):
    """A measured link."""

    device_a: Id
    device_b: Id
    seconds: Amount
    """Seconds to transfer one message of the task."""
    round_trip_seconds: Amount = 0.0
    """Of a way to a cell: seconds of a request and its answer that carry nothing; 0 where it was not measured."""
    bytes_per_second: Amount = 0.0
    """Of a way to a cell: throughput beyond that; 0 where it was not measured, then `seconds` counts."""


class Links(Body):
    """Measured links."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"links": [{"device_a": "dev_01jd0d", "device_b": "dev_01jd0f", "seconds": 0.25}]}
        }
    )

    links: Annotated[list[Link], Field(min_length=1, max_length=10_000)]

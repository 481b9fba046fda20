"""What a task is: three independent choices (topology, privacy, incentive), the papers' presets, and its rules.

Presets name the papers' combinations. Other combinations are taken when they make sense; `check_axes` refuses the rest
and says which choice does not go with which.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

from coterie.market import LocalSteps
from coterie.survey import Question
from services.aggregation.errors import BadTask

TOPOLOGIES = ("star", "clusters", "mesh", "cells")
PRIVACIES = ("none", "uniform", "trust", "partial", "priced", "optimised")
INCENTIVES = ("none", "payoff", "stackelberg", "correlated")
PRESETS = {
    "fedavg": ("star", "none", "none"),
    "clusters": ("clusters", "trust", "payoff"),
    "mesh": ("mesh", "partial", "none"),
    "market": ("star", "priced", "stackelberg"),
    "survey": ("star", "priced", "correlated"),
    "multitask": ("cells", "optimised", "none"),
}
ENDED = ("finished", "failed", "cancelled")
MAX_ROUNDS = 100_000


@dataclass(frozen=True, slots=True)
class TaskSpecification:
    """What a publisher asks for; see the field comments of `aggregation.proto`."""

    name: str
    preset: str = ""
    topology: str = ""
    privacy: str = ""
    incentive: str = ""
    model_digests: tuple[str, ...] = ()
    rounds: int = 10
    min_devices: int = 1
    quorum: float = 0.8
    round_seconds: float = 600.0
    max_attempts: int = 3
    max_devices: int = 0
    training_json: str = "{}"
    parameters_json: str = "{}"
    escrow_microcredits: int = 0
    seed: int = 0
    privacy_unit: str = "device"
    auto_start: bool = False
    description: str = ""

    @property
    def training(self) -> dict[str, Any]:
        return dict(json.loads(self.training_json))

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(json.loads(self.parameters_json))


def complete(specification: TaskSpecification) -> TaskSpecification:
    """The specification with its preset's axes filled in, if all of it makes sense."""
    spec = _with_axes(specification)
    check_axes(spec.topology, spec.privacy, spec.incentive)
    _check_numbers(spec)
    for field in ("training_json", "parameters_json"):
        _check_object(field, getattr(spec, field))
    if spec.privacy_unit not in ("example", "device"):
        raise BadTask(f'privacy_unit must be "example" or "device", not {spec.privacy_unit!r}')
    _check_trade(spec)
    lines = len(spec.model_digests)
    if spec.topology == "cells" and lines < 2:
        raise BadTask(f"multitask needs at least 2 initial models, {lines} came: with one model use the preset fedavg")
    if spec.topology != "cells" and lines != 1:
        raise BadTask(f"this task needs exactly one initial model, {lines} came: upload one and name its digest")
    return spec


def _with_axes(spec: TaskSpecification) -> TaskSpecification:
    if spec.preset and spec.preset not in PRESETS:
        raise BadTask(f"no preset {spec.preset!r}; choose one of: {', '.join(PRESETS)}, or give the axes instead")
    topology, privacy, incentive = PRESETS.get(spec.preset, ("star", "none", "none"))
    return replace(
        spec,
        topology=spec.topology or topology,
        privacy=spec.privacy or privacy,
        incentive=spec.incentive or incentive,
    )


def check_axes(topology: str, privacy: str, incentive: str) -> None:
    """Refuses unknown values and combinations that cannot work, saying what would."""
    for axis, value, known in (
        ("topology", topology, TOPOLOGIES),
        ("privacy", privacy, PRIVACIES),
        ("incentive", incentive, INCENTIVES),
    ):
        if value not in known:
            raise BadTask(f"no {axis} {value!r}; choose one of: {', '.join(known)}")
    refusals = (
        (
            privacy == "trust" and topology != "clusters",
            "privacy trust needs the topology clusters: it is trust in a head",
        ),
        (
            privacy == "partial" and topology != "mesh",
            "privacy partial needs the topology mesh: it noises planned devices",
        ),
        (
            privacy == "optimised" and topology != "cells",
            "privacy optimised needs the topology cells: it is solved there",
        ),
        (topology == "mesh" and privacy not in ("none", "partial"), "the topology mesh takes privacy none or partial"),
        (topology == "mesh" and incentive != "none", "the topology mesh pays nobody: choose incentive none"),
        (
            incentive == "payoff" and topology != "clusters",
            "incentive payoff divides a cluster's value: choose clusters",
        ),
        (
            incentive == "stackelberg" and (topology, privacy) not in (("star", "priced"), ("clusters", "trust")),
            "incentive stackelberg goes with star and priced, or with clusters and trust",
        ),
        (
            incentive == "correlated" and (topology, privacy) != ("star", "priced"),
            "incentive correlated needs star, priced",
        ),
        (
            privacy == "priced" and incentive not in ("stackelberg", "correlated"),
            "privacy priced needs a price: choose incentive stackelberg or correlated",
        ),
    )
    for refused, reason in refusals:
        if refused:
            raise BadTask(reason)


def _check_numbers(spec: TaskSpecification) -> None:
    if not 1 <= len(spec.name) <= 100:
        raise BadTask(f"name must have 1 to 100 characters, not {len(spec.name)}")
    if not 1 <= spec.rounds <= MAX_ROUNDS:
        raise BadTask(f"rounds must be from 1 to {MAX_ROUNDS}, not {spec.rounds}")
    if spec.incentive == "correlated" and spec.rounds != 1:
        raise BadTask(f"a survey asks once: rounds must be 1, not {spec.rounds}")
    if spec.min_devices < 1:
        raise BadTask(f"min_devices must be at least 1, not {spec.min_devices}")
    if spec.max_devices and spec.max_devices < spec.min_devices:
        raise BadTask(f"max_devices {spec.max_devices} is below min_devices {spec.min_devices}")
    if not 0 < spec.quorum <= 1:
        raise BadTask(f"quorum must be above 0 and at most 1, not {spec.quorum}")
    if not (0.1 <= spec.round_seconds <= 30 * 86_400):
        raise BadTask(f"round_seconds must be from 0.1 to 2592000 (30 days), not {spec.round_seconds}")
    if spec.escrow_microcredits < 0:
        raise BadTask(f"escrow_microcredits must be at least 0, not {spec.escrow_microcredits}")
    if not 0 <= spec.seed < 2**63:
        raise BadTask(f"seed must be from 0 to 2^63 - 1, not {spec.seed}")


def _check_trade(spec: TaskSpecification) -> None:
    """Refuses what devices that sell their privacy could not work with."""
    try:
        if spec.incentive == "correlated":
            Question.of(spec.parameters)
        elif spec.privacy == "priced":
            LocalSteps.of(spec.training)
            told = spec.parameters.get("pricing")
            if isinstance(told, dict) and told.get("credits_per_point"):
                raise ValueError("credits_per_point pays clusters: choose the topology clusters, or leave it out")
    except (TypeError, ValueError) as error:
        raise BadTask(str(error)) from error


def _check_object(field: str, text: str) -> None:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadTask(f"{field} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadTask(f"{field} must be a JSON object")


def needed(participants: int, quorum: float, min_devices: int) -> int:
    """How many of a round's participants must deliver."""
    return max(min_devices, math.ceil(participants * quorum - 1e-9))

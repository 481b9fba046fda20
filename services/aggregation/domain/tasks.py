"""A task and the rules every task follows; rules of a topology, privacy or incentive are in `strategies`."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from coterie.learning.training_config import check_training
from coterie.parameters.registry import check_keys
from coterie.parameters.task import SumsParameters
from coterie.records.enums import JoinBy, PrivacyUnit, RoundMode
from services.aggregation.domain import joining
from services.aggregation.domain.buffering import Buffering, read_mode
from services.aggregation.domain.rules.choice import choose
from services.aggregation.domain.stopping import Stop
from services.aggregation.errors import BadTask
from services.kit.rpc.parameters import refusing

MAX_ROUNDS = 100_000
MAX_TRAINING_BYTES = 16 << 10
MAX_PARAMETERS_BYTES = 64 << 10
MAX_DESCRIPTION_CHARACTERS = 10_000
MAX_MODELS = 64
KEPT_ROUNDS = 100
"""Rounds of an asynchronous task whose updates stay stored, unless it says otherwise."""


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
    privacy_unit: PrivacyUnit = PrivacyUnit.DEVICE
    auto_start: bool = False
    description: str = ""
    rule: str = "mean"
    join_by: JoinBy = JoinBy.OPEN
    invited: tuple[str, ...] = ()
    mode: RoundMode = RoundMode.SYNCHRONOUS
    keep_rounds: int = 0
    fraction: float = 0.0
    stop: Stop | None = None

    @property
    def training(self) -> dict[str, Any]:
        return dict(json.loads(self.training_json))

    @property
    def buffering(self) -> Buffering | None:
        """How updates become steps in an asynchronous task; None in a synchronous one."""
        return read_mode(self.mode, self.parameters_json, self.min_devices)

    @property
    def draws(self) -> bool:
        """Whether a round's devices are drawn by lot."""
        return self.max_devices > 0 or 0.0 < self.fraction < 1.0

    def most_devices(self, there: int) -> int:
        """How many of the devices that are there take part in a round; 0 = all."""
        if not 0.0 < self.fraction < 1.0:
            return self.max_devices
        share = max(self.min_devices, math.ceil(there * self.fraction - 1e-9))
        return min(share, self.max_devices) if self.max_devices else share

    @property
    def kept_rounds(self) -> int:
        """How many rounds back updates stay stored."""
        return max(self.keep_rounds or (KEPT_ROUNDS if self.mode is RoundMode.ASYNCHRONOUS else 0), 0)

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(json.loads(self.parameters_json))

    @property
    def has_secure_sums(self) -> bool:
        """Whether updates go into secure sums; the others have no sum_sessions, clerks or masked words to look for."""
        return SumsParameters.of(self.parameters).mode == "secure"

    @property
    def choices(self) -> dict[str, str]:
        """What the task chose of each axis that has parameters."""
        return {
            "topology": self.topology,
            "privacy": self.privacy,
            "incentive": self.incentive,
            "rule": self.rule,
            "mode": str(self.mode),
        }


def check(spec: TaskSpecification) -> None:
    """Raises BadTask for what makes no sense in any task."""
    _check_numbers(spec)
    if len(spec.description) > MAX_DESCRIPTION_CHARACTERS:
        raise BadTask(
            f"description has {len(spec.description)} characters, at most {MAX_DESCRIPTION_CHARACTERS} are taken"
        )
    if len(spec.model_digests) > MAX_MODELS:
        raise BadTask(f"a task has at most {MAX_MODELS} models, not {len(spec.model_digests)}")
    _check_object("training", spec.training_json, MAX_TRAINING_BYTES)
    try:
        check_training(spec.training)
    except ValueError as error:
        raise BadTask(str(error)) from error
    _check_object("parameters", spec.parameters_json, MAX_PARAMETERS_BYTES)
    _check_rule(spec)
    with refusing():
        check_keys(spec.parameters, spec.choices)
    joining.check(spec.join_by, spec.invited)
    if spec.privacy_unit not in list(PrivacyUnit):
        raise BadTask(f'privacy_unit must be "example" or "device", not {spec.privacy_unit!r}')


def _check_rule(spec: TaskSpecification) -> None:
    buffering = spec.buffering
    least = spec.min_devices if buffering is None else buffering.size
    why = choose(spec.rule, spec.parameters_json).rule.why_not(least)
    if why and buffering is not None:
        raise BadTask(f"parameters.rule.f: {why}; raise parameters.asynchronous.buffer or lower f")
    if why:
        raise BadTask(f"parameters.rule.f: {why}; raise min_devices or lower f")


def _check_numbers(spec: TaskSpecification) -> None:
    if not 1 <= len(spec.name) <= 100:
        raise BadTask(f"name must have 1 to 100 characters, not {len(spec.name)}")
    if not 1 <= spec.rounds <= MAX_ROUNDS:
        raise BadTask(f"rounds must be from 1 to {MAX_ROUNDS}, not {spec.rounds}")
    if spec.min_devices < 1:
        raise BadTask(f"min_devices must be at least 1, not {spec.min_devices}")
    if spec.max_devices and spec.max_devices < spec.min_devices:
        raise BadTask(f"max_devices {spec.max_devices} is below min_devices {spec.min_devices}")
    if not 0 <= spec.fraction <= 1:
        raise BadTask(f"fraction must be above 0 and at most 1, or 0 for all devices, not {spec.fraction}")
    if not 0 < spec.quorum <= 1:
        raise BadTask(f"quorum must be above 0 and at most 1, not {spec.quorum}")
    if not (0.1 <= spec.round_seconds <= 30 * 86_400):
        raise BadTask(f"round_seconds must be from 0.1 to 2592000 (30 days), not {spec.round_seconds}")
    if not -1 <= spec.keep_rounds <= MAX_ROUNDS:
        raise BadTask(f"keep_rounds must be from -1 (none) to {MAX_ROUNDS}, not {spec.keep_rounds}")
    if spec.escrow_microcredits < 0:
        raise BadTask(f"escrow_microcredits must be at least 0, not {spec.escrow_microcredits}")
    if not 0 <= spec.seed < 2**63:
        raise BadTask(f"seed must be from 0 to 2^63 - 1, not {spec.seed}")


def _check_object(field: str, text: str, most_bytes: int) -> None:
    size = len(text.encode())
    if size > most_bytes:
        raise BadTask(
            f"{field} has {size} bytes as JSON, at most {most_bytes} are taken: leave data to devices and models"
        )
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadTask(f"{field} is not JSON, or nested too deeply: {error}") from error
    if not isinstance(value, dict):
        raise BadTask(f"{field} must be a JSON object")


def needed(participants: int, quorum: float, min_devices: int) -> int:
    """How many of a round's participants must deliver."""
    return max(min_devices, math.ceil(participants * quorum - 1e-9))

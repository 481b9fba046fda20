"""Training instructions of a task, checked when the task is created and again on each device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coterie.errors import Declined
from coterie.parameters import BadParameter, Parameter, ParameterGroup, parameter, parameter_group

CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class Instructions:
    """What `Learner.train` receives.

    `proximal` is μ of FedProx (T. Li and others, "Federated optimization in heterogeneous networks", MLSys 2020): each
    step also pulls towards the round's model w⁰, as the gradient of μ/2·‖w − w⁰‖² does. `custom` is for the author's
    own code; nothing else reads it.
    """

    epochs: int = 1
    batch_size: int = 32
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    proximal: float = 0.0
    custom: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, training: Mapping[str, Any], batch_size: int = 0) -> Instructions:
        """Read a work item's training object; `batch_size` above 0 replaces its own, other keys are ignored."""
        given = {name: training[name] for name in cls.__slots__ if name in training}
        if batch_size:
            given["batch_size"] = batch_size
        try:
            return cls(**_read(given))
        except BadParameter as error:
            raise Declined(f"the task's training makes no sense: {error}") from error


@parameter_group("training")
class TrainingParameters(ParameterGroup):
    """Keys of a task's training object: those of `Instructions`, then those that single strategies read.

    The defaults differ by strategy, so none stands here.
    """

    epochs: int | None = parameter(default=None, at_least=0, help="Passes over the samples in a round.")
    batch_size: int | None = parameter(default=None, at_least=1, help="Samples in a mini-batch.")
    learning_rate: float | None = parameter(default=None, at_least=0, help="η, length of a step.")
    momentum: float | None = parameter(default=None, at_least=0, at_most=1, help="Share of the last step that stays.")
    weight_decay: float | None = parameter(default=None, at_least=0, help="Pull of the weights towards 0.")
    clip_norm: float | None = parameter(default=None, above=0, help="Bound on the L2 norm.")
    proximal: float | None = parameter(default=None, at_least=0, help="μ of FedProx.")
    steps: int | None = parameter(default=None, at_least=1, at_most=10_000, help="Passes of a budget sale.")
    batches: int | None = parameter(default=None, at_least=1, at_most=1_000, help="Mini-batches of a pass.")
    least_budget: float | None = parameter(default=None, above=0, help="Smallest zCDP budget that a device sells.")
    learning_rate_decay: float | None = parameter(
        default=None, above=0, at_most=1, help="Factor of the learning rate after each round of a mesh."
    )


def check_training(training: Mapping[str, Any]) -> None:
    """Raise ValueError for an unknown key, a wrong type or a value out of bounds."""
    for name in training:
        if name not in KNOWN and name != CUSTOM:
            unknown = BadParameter.unknown(f"training.{name[:40]}", name.lower(), [*KNOWN, CUSTOM], "training")
            raise ValueError(f"{unknown}; put what your own code reads under training.{CUSTOM}")
    _read(training)


KNOWN: Mapping[str, Parameter] = TrainingParameters.parameters()


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given values in their declared forms; raise BadParameter for another value, null included."""
    custom = given.get(CUSTOM, {})
    if not isinstance(custom, Mapping):
        raise BadParameter(f"training.{CUSTOM}", f"must be a JSON object, not {repr(custom)[:60]}")
    values = {name: KNOWN[name].read(f"training.{name}", value) for name, value in given.items() if name != CUSTOM}
    return values | ({CUSTOM: custom} if CUSTOM in given else {})

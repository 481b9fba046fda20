"""Form fields of a new task that several presets share, and the aggregation options of a star."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from coterie.parameters import Parameter, ParameterGroup
from coterie.parameters.rules import TrimmingParameters
from coterie.parameters.task import AsynchronousParameters, SumsParameters


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the form.

    Attributes:
        path: its place in the specification, such as ("parameters", "privacy", "noise_max").
        kind: "text", "integer", "number", "credits" (entered in credits, sent in micro-credits) or "choice".
        default: initial value in the form; None uses the platform's default.
        least, most: bounds of a number, in addition to those of the gateway's schema.
        options: value → label, of a choice.
        parameter: its declaration, if it is a parameter of the task.
        only: (key, value) of another field; the form shows this field only while that one has the value.
    """

    key: str
    label: str
    path: tuple[str, ...]
    kind: str = "number"
    default: Any = None
    hint: str = ""
    least: float = -math.inf
    most: float = math.inf
    options: Mapping[str, str] | None = None
    only: tuple[str, str] | None = None
    required: bool = False
    parameter: Parameter | None = None


KINDS = {int: "integer", float: "number", str: "text"}


def declared(group: type[ParameterGroup], name: str, default: Any = None, **changes: Any) -> Field:
    """Build the field of a declared parameter; `default` overrides the declared one in the form."""
    item = group.parameters()[name]
    usual = None if item.is_required else item.default
    return Field(
        key=changes.pop("key", name),
        label=item.title,
        path=("parameters", group.section, name),
        kind="choice" if item.options else KINDS[item.form],
        default=usual if default is None else default,
        hint=item.help,
        required=item.is_required,
        parameter=item,
        **changes,
    )


COMMON = (
    Field("rounds", "Rounds", ("rounds",), "integer", 10, required=True),
    Field(
        "min_devices",
        "Devices at least",
        ("min_devices",),
        kind="integer",
        default=3,
        hint="A round cannot close with fewer.",
        required=True,
    ),
    Field(
        "max_devices",
        "Devices per round at most",
        ("max_devices",),
        kind="integer",
        default=0,
        hint="0 means all; otherwise a sample.",
    ),
    Field(
        "quorum",
        "Quorum",
        ("quorum",),
        kind="number",
        default=0.8,
        hint="Share of devices that must deliver.",
        least=0.01,
        most=1.0,
    ),
    Field("round_seconds", "Round timeout, seconds", ("round_seconds",), kind="number", default=600, least=1.0),
    Field("seed", "Seed", ("seed",), kind="integer", default=0, hint="For every random choice of the platform."),
)
EPOCHS = Field("epochs", "Epochs per round", ("training", "epochs"), kind="integer", default=1, least=1)
BATCH = Field("batch_size", "Batch size", ("training", "batch_size"), kind="integer", default=32, least=1)
RATE = Field("learning_rate", "Learning rate", ("training", "learning_rate"), kind="number", default=0.1, least=1e-9)
CLIP = Field(
    "clip_norm",
    "Clip norm",
    ("training", "clip_norm"),
    kind="number",
    default=1.0,
    hint="Largest L2 norm of an update.",
    least=1e-9,
)
ESCROW = Field(
    "escrow",
    "Escrow, credits",
    ("escrow_microcredits",),
    kind="credits",
    default=100,
    hint="The most the task may cost.",
    least=0.0,
)
SUMS = declared(
    SumsParameters,
    "mode",
    key="sums",
    options={"clear": "clear: the platform sees updates", "secure": "secure: it sees only sums"},
)
COHORT = declared(SumsParameters, "cohort_devices", only=("sums", "secure"))
STEPPING = (
    Field(
        "rule",
        "Rule",
        ("rule",),
        kind="choice",
        default="mean",
        hint="How updates are aggregated.",
        options={
            "mean": "mean: weighted by samples",
            "nnm+trimmed-mean": "nnm+trimmed-mean: tolerates dishonest devices",
            "median": "median: of each coordinate",
            "geometric-median": "geometric-median: robust to outliers",
            "fedavgm": "fedavgm: mean, with momentum",
            "fedadam": "fedadam: mean, with adaptive step sizes",
        },
    ),
    declared(TrimmingParameters, "f", 1, key="liars", only=("rule", "nnm+trimmed-mean")),
    Field(
        "mode",
        "Mode",
        ("mode",),
        "choice",
        "synchronous",
        options={
            "synchronous": "synchronous: a round waits for its devices",
            "asynchronous": "asynchronous: a step after every few updates",
        },
    ),
    declared(AsynchronousParameters, "buffer", 3, only=("mode", "asynchronous")),
    Field(
        "incentive",
        "Payment",
        ("incentive",),
        "choice",
        "none",
        options={"none": "none", "contribution": "by contribution, as your evaluator measures it"},
    ),
    replace(ESCROW, only=("incentive", "contribution")),
)

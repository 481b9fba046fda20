"""Choices of a new task that several presets share, and how a star takes its steps: by rule, mode and worth."""

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
    """One choice.

    Attributes:
        path: where it stands in the specification, such as ("parameters", "privacy", "noise_max").
        kind: "text", "integer", "number", "credits" (asked in credits, sent in micro-credits) or "choice".
        default: what stands in the form; None leaves the platform's own.
        least, most: bounds of a number; those of the gateway's contract hold besides.
        options: value → label, of a choice.
        parameter: its declaration, where it is a parameter of the task.
        only: shown only while another field has that value, as (key, value).
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
    """The choice of a declared parameter; `default` is the form's, where it differs from the declared one."""
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
        "integer",
        3,
        "A round closes with no fewer.",
        required=True,
    ),
    Field("max_devices", "Devices per round at most", ("max_devices",), "integer", 0, "0 means all; others are drawn."),
    Field("quorum", "Share that must deliver", ("quorum",), "number", 0.8, "Of a round's devices, 0 to 1.", 0.01, 1.0),
    Field("round_seconds", "Seconds a round may take", ("round_seconds",), "number", 600, "", 1.0),
    Field("seed", "Seed", ("seed",), "integer", 0, "Of every random choice the platform makes."),
)
EPOCHS = Field("epochs", "Epochs a round", ("training", "epochs"), "integer", 1, "", 1)
BATCH = Field("batch_size", "Batch size", ("training", "batch_size"), "integer", 32, "", 1)
RATE = Field("learning_rate", "Learning rate", ("training", "learning_rate"), "number", 0.1, "", 1e-9)
CLIP = Field("clip_norm", "Clip norm", ("training", "clip_norm"), "number", 1.0, "Largest L2 norm of an update.", 1e-9)
ESCROW = Field(
    "escrow", "Escrow, credits", ("escrow_microcredits",), "credits", 100, "The most the task may cost.", 0.0
)
SUMS = declared(
    SumsParameters,
    "mode",
    key="sums",
    options={"clear": "clear: the platform sees updates", "secure": "secure: it sees sums alone"},
)
COHORT = declared(SumsParameters, "cohort_devices", only=("sums", "secure"))
STEPPING = (
    Field(
        "rule",
        "Rule",
        ("rule",),
        "choice",
        "mean",
        "How updates become a step.",
        options={
            "mean": "mean: of all, by samples",
            "nnm+trimmed-mean": "nnm+trimmed-mean: some devices may lie",
            "median": "median: of each number",
            "geometric-median": "geometric-median: nearest to all",
            "fedavgm": "fedavgm: mean, with momentum",
            "fedadam": "fedadam: mean, with a step for each number",
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
            "asynchronous": "asynchronous: a step whenever enough updates came",
        },
    ),
    declared(AsynchronousParameters, "buffer", 3, only=("mode", "asynchronous")),
    Field(
        "incentive",
        "Pay",
        ("incentive",),
        "choice",
        "none",
        options={"none": "none", "contribution": "by contribution, as your evaluator says"},
    ),
    replace(ESCROW, only=("incentive", "contribution")),
)

"""Presets of a new task with their most important fields, and the specification they produce."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from coterie.parameters.pricing import CorrelatedParameters, PayoffParameters, StackelbergParameters
from coterie.parameters.privacy import OptimisedPrivacy, PartialPrivacy, TrustPrivacy, UniformPrivacy
from coterie.parameters.task import SurveyParameters
from coterie.parameters.topology import MeshParameters
from services.console.domain.fields import (
    BATCH,
    CLIP,
    COHORT,
    COMMON,
    EPOCHS,
    ESCROW,
    RATE,
    STEPPING,
    SUMS,
    Field,
    declared,
)
from services.console.domain.words import MICRO

Values = Mapping[str, Any]
Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Preset:
    """One strategy with its fields."""

    name: str
    title: str
    about: str
    fields: tuple[Field, ...]
    models: int = 1
    """Number of initial models: 0 means none is needed, 2 means two or more."""


PRESETS = (
    Preset(
        "fedavg",
        "Plain averaging",
        "Every device trains the same model and uploads its update; the platform averages the updates.",
        (
            Field(
                "privacy",
                "Noise",
                ("privacy",),
                "choice",
                "none",
                options={"none": "none: the platform sees updates", "uniform": "the same for every device"},
            ),
            declared(UniformPrivacy, "target_epsilon", 4.0, only=("privacy", "uniform")),
            declared(UniformPrivacy, "delta", 1e-05, only=("privacy", "uniform")),
            SUMS,
            COHORT,
            *STEPPING,
            EPOCHS,
            BATCH,
            RATE,
            CLIP,
        ),
    ),
    Preset(
        "clusters",
        "Social clusters",
        "Share with friends, hide from others: devices form clusters by trust, and cluster heads upload sums.",
        (
            declared(TrustPrivacy, "trust_threshold"),
            declared(TrustPrivacy, "noise_max"),
            ESCROW,
            declared(PayoffParameters, "credits_per_point", 0.01),
            EPOCHS,
            BATCH,
            RATE,
            CLIP,
        ),
    ),
    Preset(
        "mesh",
        "Mesh without a server",
        "Devices average models with their neighbours; neighbours they do not trust get noised models.",
        (
            declared(PartialPrivacy, "epsilon"),
            declared(PartialPrivacy, "clip"),
            declared(MeshParameters, "trust_threshold"),
            declared(MeshParameters, "basic_batch"),
            RATE,
        ),
    ),
    Preset(
        "market",
        "Market for privacy",
        "The platform posts a price each round; each device decides how much privacy to sell.",
        (
            ESCROW,
            declared(StackelbergParameters, "accuracy_weight", 0.01),
            Field("steps", "Gradient steps per round", ("training", "steps"), kind="integer", default=1, least=1),
            Field(
                "learning_rate",
                "Learning rate",
                ("training", "learning_rate"),
                kind="number",
                default=0.5,
                least=1e-9,
            ),
            CLIP,
        ),
    ),
    Preset(
        "survey",
        "Survey",
        "One question, noised answers, one estimate with its standard error. No model is trained.",
        (
            declared(SurveyParameters, "question", ""),
            declared(SurveyParameters, "low", 0.0),
            declared(SurveyParameters, "high", 10.0),
            ESCROW,
            declared(CorrelatedParameters, "variance_low", 0.3721),
            declared(CorrelatedParameters, "error", 10.0),
        ),
        models=0,
    ),
    Preset(
        "multitask",
        "Several models over cells",
        "Devices choose the best of several models; base stations schedule the devices.",
        (
            declared(OptimisedPrivacy, "dimension", 100.0),
            declared(OptimisedPrivacy, "privacy_weight", 0.01),
            EPOCHS,
            RATE,
        ),
        models=2,
    ),
)
BY_NAME = {preset.name: preset for preset in PRESETS}
UNIT_OF = {"fedavg": "device", "clusters": "device", "mesh": "example", "market": "example", "survey": "device"} | {
    "multitask": "example"
}
AXES = {
    "fedavg": ("star", "none", "none"),
    "clusters": ("clusters", "trust", "payoff"),
    "mesh": ("mesh", "partial", "none"),
    "market": ("star", "priced", "stackelberg"),
    "survey": ("star", "priced", "correlated"),
    "multitask": ("cells", "optimised", "none"),
}
"""Default topology, privacy and incentive of each preset."""


def shown(preset: Preset, values: Values) -> list[Field]:
    """Return the fields that apply to the values chosen so far."""
    common = [item for item in COMMON if preset.name != "survey" or item.key != "rounds"]
    fields = [*preset.fields, *common]
    return [field for field in fields if field.only is None or values.get(field.only[0]) == field.only[1]]


def fault_of(field: Field, value: Any, contract: Mapping[str, Any]) -> str | None:
    """Return the error message of a value, or None when it is valid.

    `contract` is the schema of a new task in the gateway's OpenAPI document.
    """
    if value in (None, ""):
        return "Required." if field.required else None
    rule = contract.get(field.path[0], {}) if len(field.path) == 1 else {}
    if field.kind == "choice":
        return None if field.options and value in field.options else "Choose a value from the list."
    if field.kind == "text":
        longest = int(rule.get("maxLength", 2000))
        return None if len(str(value)) <= longest else f"At most {longest} characters."
    try:
        number = float(value)
    except (TypeError, ValueError):
        return "Enter a number."
    if not math.isfinite(number) or (field.kind == "integer" and number != int(number)):
        return "Enter a whole number." if field.kind == "integer" else "Enter a finite number."
    scale = MICRO if field.kind == "credits" else 1
    least, most = (
        max(field.least, rule.get("minimum", -math.inf) / scale),
        min(field.most, rule.get("maximum", math.inf) / scale),
    )
    if field.parameter is not None and not field.parameter.limits.allow(number):
        return f"Enter {field.parameter.allowed}."
    if number < least:
        return f"At least {least:g}."
    return f"At most {most:g}." if number > most else None


def specification(preset: Preset, name: str, description: str, values: Values, *, auto_start: bool) -> Spec:
    """Build the specification for the platform, without models."""
    spec: Spec = {
        "name": name,
        "preset": preset.name,
        "description": description,
        "privacy_unit": UNIT_OF[preset.name],
        "auto_start": auto_start,
        "training": {},
        "parameters": {},
    }
    for field in shown(preset, values):
        value = values.get(field.key)
        if value in (None, ""):
            continue
        section = spec
        for part in field.path[:-1]:
            section = section.setdefault(part, {})
        section[field.path[-1]] = _convert(field, value)
    if preset.name == "survey":
        spec["rounds"] = 1
        spec["description"] = description or str(values.get("question", ""))
    return spec


def joining(join_by: str, invited: str) -> Spec:
    """Return who may join; `invited` lists ids of owners or devices, separated by commas or spaces."""
    ids = invited.replace(",", " ").split()
    if join_by == "open" and ids:
        raise ValueError("any device may join, but ids are given; restrict who may join or remove the ids")
    if join_by != "open" and not ids:
        raise ValueError(f"the ids of the {join_by} that may join are missing; enter at least one")
    return {} if join_by == "open" else {"join_by": join_by, "invited": ids}


def _convert(field: Field, value: Any) -> Any:
    if field.kind == "credits":
        return round(float(value) * MICRO)
    if field.kind == "integer":
        return int(value)
    return float(value) if field.kind == "number" else str(value)


def merged(spec: Spec, more: str) -> Spec:
    """Merge further keys, given as JSON text, into the specification; raise ValueError for invalid JSON."""
    if not more.strip():
        return spec
    try:
        keys = json.loads(more)
    except ValueError as error:
        raise ValueError(f"this is not valid JSON: {error}") from error
    if not isinstance(keys, dict):
        raise ValueError('enter a JSON object, such as {"max_attempts": 5}')
    return _merge(deepcopy(spec), keys)


def _merge(below: Spec, above: Mapping[str, Any]) -> Spec:
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            below[key] = _merge(below[key], value)
        else:
            below[key] = value
    return below


def axes_of(spec: Mapping[str, Any]) -> Spec:
    """Return the specification with the topology, privacy and incentive of its preset filled in."""
    topology, privacy, incentive = AXES.get(str(spec.get("preset")), ("star", "none", "none"))
    return {
        **spec,
        "topology": spec.get("topology") or topology,
        "privacy": spec.get("privacy") or privacy,
        "incentive": spec.get("incentive") or incentive,
    }

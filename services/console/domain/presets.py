"""What can be asked for in a new task: presets with the choices that matter most, and the specification they make."""

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
    """One strategy, with its choices."""

    name: str
    title: str
    about: str
    fields: tuple[Field, ...]
    models: int = 1
    """Models to start from: 0 makes its own, 2 means two or more."""


PRESETS = (
    Preset(
        "fedavg",
        "Plain averaging",
        "Everybody trains from the same model and uploads its change; the platform averages them.",
        (
            Field(
                "privacy",
                "Noise",
                ("privacy",),
                "choice",
                "none",
                options={"none": "none: the platform sees updates", "uniform": "the same for everybody"},
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
        "Share with friends, hide from others: devices form clusters by trust, and their heads hand in sums.",
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
        "Devices mix models with neighbours: as they are with those they trust, noised with others.",
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
        "The platform posts a price each round; every device decides how much privacy to sell at it.",
        (
            ESCROW,
            declared(StackelbergParameters, "accuracy_weight", 0.01),
            Field("steps", "Gradient steps a round", ("training", "steps"), "integer", 1, "", 1),
            Field("learning_rate", "Learning rate", ("training", "learning_rate"), "number", 0.5, "", 1e-9),
            CLIP,
        ),
    ),
    Preset(
        "survey",
        "Survey",
        "One question, noised answers, an estimate with its error. Nothing is trained.",
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
        "Devices find out which of several models is theirs; base stations schedule who is served.",
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
"""Topology, privacy and incentive of each preset, before a choice changes one."""


def shown(preset: Preset, values: Values) -> list[Field]:
    """The fields that apply, given what is chosen so far."""
    common = [item for item in COMMON if preset.name != "survey" or item.key != "rounds"]
    fields = [*preset.fields, *common]
    return [field for field in fields if field.only is None or values.get(field.only[0]) == field.only[1]]


def fault_of(field: Field, value: Any, contract: Mapping[str, Any]) -> str | None:
    """What is wrong with a value, in words; None when it is fine.

    `contract` is the schema of a new task in the gateway's OpenAPI document: its bounds are the API's own.
    """
    if value in (None, ""):
        return "Needed." if field.required else None
    rule = contract.get(field.path[0], {}) if len(field.path) == 1 else {}
    if field.kind == "choice":
        return None if field.options and value in field.options else "Choose one of the list."
    if field.kind == "text":
        longest = int(rule.get("maxLength", 2000))
        return None if len(str(value)) <= longest else f"At most {longest} characters."
    try:
        number = float(value)
    except (TypeError, ValueError):
        return "A number, please."
    if not math.isfinite(number) or (field.kind == "integer" and number != int(number)):
        return "A whole number, please." if field.kind == "integer" else "A finite number, please."
    scale = MICRO if field.kind == "credits" else 1
    least, most = (
        max(field.least, rule.get("minimum", -math.inf) / scale),
        min(field.most, rule.get("maximum", math.inf) / scale),
    )
    if field.parameter is not None and not field.parameter.limits.allow(number):
        return f"Give {field.parameter.allowed}."
    if number < least:
        return f"At least {least:g}."
    return f"At most {most:g}." if number > most else None


def specification(preset: Preset, name: str, description: str, values: Values, *, auto_start: bool) -> Spec:
    """What is sent to the platform, without models."""
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
        place = spec
        for part in field.path[:-1]:
            place = place.setdefault(part, {})
        place[field.path[-1]] = _sent(field, value)
    if preset.name == "survey":
        spec["rounds"] = 1
        spec["description"] = description or str(values.get("question", ""))
    return spec


def joining(join_by: str, invited: str) -> Spec:
    """Who may join: ids of owners or devices as they were typed, with commas or spaces between."""
    ids = invited.replace(",", " ").split()
    if join_by == "open" and ids:
        raise ValueError("any device may join: choose who may, or leave the ids out")
    if join_by != "open" and not ids:
        raise ValueError(f"the ids of the {join_by} that may join are missing")
    return {} if join_by == "open" else {"join_by": join_by, "invited": ids}


def _sent(field: Field, value: Any) -> Any:
    if field.kind == "credits":
        return round(float(value) * MICRO)
    if field.kind == "integer":
        return int(value)
    return float(value) if field.kind == "number" else str(value)


def merged(spec: Spec, more: str) -> Spec:
    """The specification with further keys, given as JSON text, put over it; raises ValueError with what is wrong."""
    if not more.strip():
        return spec
    try:
        result = json.loads(more)
    except ValueError as error:
        raise ValueError(f"this is no JSON: {error}") from error
    if not isinstance(result, dict):
        raise ValueError('give a JSON object, such as {"max_attempts": 5}')
    return _over(deepcopy(spec), result)


def _over(below: Spec, above: Mapping[str, Any]) -> Spec:
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            below[key] = _over(below[key], value)
        else:
            below[key] = value
    return below


def axes_of(spec: Mapping[str, Any]) -> Spec:
    """The specification with the three axes its preset stands for."""
    topology, privacy, incentive = AXES.get(str(spec.get("preset")), ("star", "none", "none"))
    return {
        **spec,
        "topology": spec.get("topology") or topology,
        "privacy": spec.get("privacy") or privacy,
        "incentive": spec.get("incentive") or incentive,
    }

"""Who can see what of a device in a task, and what its ε protects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.console.domain import words

Seen = tuple[str, str]
NO_EPSILON = "no ε describes it"
NO_NOISE = f"without noise: {NO_EPSILON}"


def who_sees(spec: Mapping[str, Any]) -> list[Seen]:
    """Return (who, what) for every party that can see something of a device in a task."""
    topology, privacy = str(spec["topology"]), str(spec["privacy"])
    if topology == "clusters":
        return _clusters(privacy)
    if topology == "mesh":
        return _mesh(privacy)
    if spec["preset"] == "survey":
        return [
            ("The platform", "one answer with the noise that the device chose; it deletes the answer after the round"),
            ("The publisher", "the mean of all answers with its error"),
            ("Other devices", "nothing"),
        ]
    if is_secure(spec):
        return _secure(privacy)
    what = "the device's update" + (f", {NO_NOISE}" if privacy == "none" else " with noise that the device added")
    return [
        ("The platform", f"{what}; metrics such as accuracy and loss; its size and the time it was sent"),
        ("The publisher and later devices", "the models aggregated from all updates"),
        ("Other devices", "nothing about this device alone"),
    ]


def is_secure(spec: Mapping[str, Any]) -> bool:
    """Whether a task's updates go into secure sums."""
    sums = (spec.get("parameters") or {}).get("sums") or {}
    return str(sums.get("mode", "clear")) == "secure"


def _secure(privacy: str) -> list[Seen]:
    noise = f"without noise: {NO_EPSILON}" if privacy == "none" else "with the noise of all devices together"
    return [
        ("The platform", f"sums of many devices' updates and no single one, {noise}; who took part, and when"),
        (
            "The clerks of a sum",
            "sealed seeds; a threshold of clerks that colludes with the platform can see updates",
        ),
        ("The publisher and later devices", "the models aggregated from all updates"),
        ("Other devices", "nothing about this device alone"),
    ]


def _clusters(privacy: str) -> list[Seen]:
    member = {
        "none": f"its members' updates, {NO_NOISE}",
        "trust": "its members' updates: without noise from those that trust it (no ε describes that), with noise "
        "from the others",
    }.get(privacy, "its members' updates with noise")
    alone = "the update of an unclustered device" + (f", {NO_NOISE}" if privacy == "none" else " with the most noise")
    return [
        ("The head of the cluster", member),
        (
            "The platform",
            f"sums of whole clusters, {alone}, all metrics, who sends to whom and when",
        ),
        ("Other clusters", "nothing"),
    ]


def _mesh(privacy: str) -> list[Seen]:
    others = f"the same, {NO_NOISE}" if privacy == "none" else "the device's parameters with noise"
    return [
        ("Neighbours it trusts", f"the device's parameters, {NO_NOISE}"),
        ("Neighbours it does not trust", others),
        ("The platform", "sealed messages that it cannot open, their sizes and times, all metrics"),
    ]


def promise(spec: Mapping[str, Any]) -> str:
    """Describe in a sentence what the ε of a task guarantees."""
    if spec["privacy"] == "none":
        return "This task adds no noise, so no ε limits what recipients of an update learn."
    unit = words.UNIT_WORDS.get(str(spec["privacy_unit"]), "what the task protects")
    return (
        f"ε limits what a recipient of noised releases learns about {unit}: the odds of any guess change by at "
        "most a factor e^ε. A smaller ε hides more; releases add up over rounds and tasks."
    )

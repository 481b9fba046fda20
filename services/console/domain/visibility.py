"""Who could see what of a device in a task, and what its ε hides: the words, from the task's own choices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.console.domain import words

Seen = tuple[str, str]
NO_EPSILON = "no ε describes it"
NO_NOISE = f"without noise: {NO_EPSILON}"


def who_sees(spec: Mapping[str, Any]) -> list[Seen]:
    """(who, what) for every party that could see something of a device in a task."""
    topology, privacy = str(spec["topology"]), str(spec["privacy"])
    if topology == "clusters":
        return _clusters(privacy)
    if topology == "mesh":
        return _mesh(privacy)
    if spec["preset"] == "survey":
        return [
            ("The platform", "one answer with the noise the device chose; it keeps no answer beyond the round"),
            ("The publisher", "the mean of all answers with its error"),
            ("Other devices", "nothing"),
        ]
    if is_secure(spec):
        return _secure(privacy)
    what = "the device's update" + (f", {NO_NOISE}" if privacy == "none" else " with noise, made on the device")
    return [
        ("The platform", f"{what}; figures such as accuracy and loss; when it was sent and how large it is"),
        ("The publisher and later devices", "the models made from all updates together"),
        ("Other devices", "nothing of this device alone"),
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
            "sealed seeds; as many of them as the threshold, together with the platform, see updates",
        ),
        ("The publisher and later devices", "the models made from all updates together"),
        ("Other devices", "nothing of this device alone"),
    ]


def _clusters(privacy: str) -> list[Seen]:
    member = {
        "none": f"its members' updates, {NO_NOISE}",
        "trust": "its members' updates: as they are from those who trust it enough (no ε describes that), with noise "
        "from the others",
    }.get(privacy, "its members' updates with noise")
    alone = "the update of a device alone" + (f", {NO_NOISE}" if privacy == "none" else " with the most noise")
    return [
        ("The head of the cluster", member),
        ("The platform", f"sums of whole clusters, {alone}, everybody's figures, who writes to whom and when"),
        ("Other clusters", "nothing"),
    ]


def _mesh(privacy: str) -> list[Seen]:
    others = f"the same, {NO_NOISE}" if privacy == "none" else "the device's parameters with noise"
    return [
        ("Neighbours it trusts", f"the device's parameters, {NO_NOISE}"),
        ("Neighbours it does not trust", others),
        ("The platform", "sealed letters it cannot open, their sizes and times, everybody's figures"),
    ]


def promise(spec: Mapping[str, Any]) -> str:
    """What the ε of a task promises, in a sentence."""
    if spec["privacy"] == "none":
        return "Nothing is noised in this task, so no ε limits what those who see an update learn."
    unit = words.UNIT_WORDS.get(str(spec["privacy_unit"]), "what the task protects")
    return (
        f"ε limits what anybody who receives a noised release learns about {unit}: the odds of any guess change by at "
        "most a factor e^ε. The smaller, the more is hidden; releases add up over rounds and tasks."
    )

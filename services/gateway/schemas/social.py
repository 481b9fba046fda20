"""Interactions, relations and trust."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from services.gateway.schemas.base import Amount, Body, Fraction, Id, Name, OpenEnum, Prose, Time

RelationKind = Literal["ownership", "parental", "co-location", "co-work", "social", "social-public", "friendship"]


class NewInteraction(Body):
    """One thing two devices did together, as the reporter saw it."""

    id: Name
    """Chosen by the reporter; repeats are ignored."""
    device_a: Id
    device_b: Id
    positive: bool
    duration_seconds: Amount = 0.0
    at: Time
    kind: OpenEnum = ""
    """What it was, such as "meeting"."""
    note: Prose = ""


class NewInteractions(Body):
    """Interactions to record; a batch with a bad item is refused whole."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "interactions": [
                    {
                        "id": "meeting-17",
                        "device_a": "dev_01jd0d",
                        "device_b": "dev_01jd0f",
                        "positive": True,
                        "duration_seconds": 240.0,
                        "at": 1767225600.0,
                        "kind": "meeting",
                    }
                ]
            }
        }
    )

    interactions: Annotated[list[NewInteraction], Field(min_length=1, max_length=10_000)]


class Friendship(Body):
    """How close two owners are; 0 withdraws the friendship."""

    model_config = ConfigDict(json_schema_extra={"example": {"strength": 0.8}})

    strength: Fraction


class Derivation(Body):
    """Which relations to derive again."""

    model_config = ConfigDict(json_schema_extra={"example": {"kinds": ["ownership", "co-location"]}})

    kinds: Annotated[list[RelationKind], Field(default_factory=list, max_length=6)]
    """Empty means all."""

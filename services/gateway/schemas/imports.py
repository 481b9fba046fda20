"""Bulk imports: the lines of an NDJSON body."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from services.gateway.schemas.base import MOST_INT64, Amount, Body, Int64, Name, OpenEnum, Prose, Time
from services.gateway.schemas.identity import NewCapabilities, NewLocation
from services.gateway.schemas.social import RelationKind

ImportName = Annotated[Name, Field(max_length=60)]


class ImportHeader(Body):
    """The first line of an import."""

    name: ImportName
    """The same name continues after the last stored line."""
    owner_name: Name
    """Owner of devices whose row names no owner."""
    synthetic: bool = False
    """Whether a generator made the data."""
    public: bool = False
    """Whether that owner is public, such as a municipality."""
    lines: Int64 = 0
    """Lines of the whole import, for progress displays; not stored."""


class ImportedDevice(Body):
    """A device to create, unless its owner has one of that name."""

    name: Name
    kind: OpenEnum = ""
    brand: OpenEnum = ""
    model: OpenEnum = ""
    location: NewLocation | None = None
    capabilities: NewCapabilities | None = None


class ImportedInteraction(Body):
    """An interaction of two devices by name; unknown names become devices of the header's owner."""

    id: OpenEnum = ""
    """Empty means the import's name and the line."""
    device_a: Name
    device_b: Name
    positive: bool
    duration_seconds: Amount = 0.0
    at: Time
    kind: Annotated[OpenEnum, Field(max_length=50)] = ""
    note: Annotated[Prose, Field(max_length=500)] = ""


class ImportedRelation(Body):
    """A relation of two devices by name."""

    kind: RelationKind
    a: Name
    b: Name
    strength: Annotated[float, Field(gt=0, le=1)] = 1.0
    because: Annotated[Prose, Field(max_length=500)] = ""
    since: Time = 0.0


class ImportRow(Body):
    """A line after the first: a device, an interaction, a relation, or several of them."""

    line: Annotated[int, Field(ge=1, le=MOST_INT64)]
    """Line number in the source; numbers increase."""
    owner_name: OpenEnum = ""
    """Owner of the device; empty means the header's."""
    device: ImportedDevice | None = None
    interaction: ImportedInteraction | None = None
    relation: ImportedRelation | None = None

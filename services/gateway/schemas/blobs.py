"""Bodies about what is stored."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from services.gateway.schemas.base import Body, OpenEnum


class NewSweep(Body):
    """How to sweep."""

    model_config = ConfigDict(json_schema_extra={"example": {"dry_run": True, "older_than_seconds": 86400}})

    dry_run: bool = Field(default=True, description="Only look.")
    older_than_seconds: float = Field(
        default=86_400.0, ge=600, le=315_360_000, description="What was stored less long ago stays."
    )


class NewPruning(Body):
    """What to forget."""

    model_config = ConfigDict(json_schema_extra={"example": {"dry_run": True, "older_than_seconds": 7776000}})

    dry_run: bool = Field(default=True, description="Only look.")
    older_than_seconds: float = Field(
        default=7_776_000.0, ge=3600, le=315_360_000, description="Tasks that ended less long ago stay as they are."
    )
    task_id: OpenEnum = Field(default="", max_length=64, description="This task alone; left out: all.")

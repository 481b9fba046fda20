"""Bodies for storage."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from services.gateway.schemas.base import Body, OpenEnum


class NewSweep(Body):
    """Options of a sweep."""

    model_config = ConfigDict(json_schema_extra={"example": {"dry_run": True, "older_than_seconds": 86400}})

    dry_run: bool = Field(default=True, description="Report without deleting.")
    older_than_seconds: float = Field(default=86_400.0, ge=600, le=315_360_000, description="Newer blobs stay.")


class NewPruning(Body):
    """Options of pruning."""

    model_config = ConfigDict(json_schema_extra={"example": {"dry_run": True, "older_than_seconds": 7776000}})

    dry_run: bool = Field(default=True, description="Report without deleting.")
    older_than_seconds: float = Field(
        default=7_776_000.0, ge=3600, le=315_360_000, description="Tasks that ended later stay unchanged."
    )
    task_id: OpenEnum = Field(default="", max_length=64, description="Only this task; by default all.")

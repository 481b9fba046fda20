"""Settings of the aggregation server."""

from __future__ import annotations

from pydantic import Field

from services.kit.runtime.settings import ServiceSettings


class AggregationSettings(ServiceSettings):
    """Adds how much may be stored."""

    device_quota_bytes: int = Field(
        default=8 << 30, gt=0, description="What one device may have stored in open rounds, updates and letters."
    )
    publisher_quota_bytes: int = Field(default=64 << 30, gt=0, description="Models one publisher may have uploaded.")

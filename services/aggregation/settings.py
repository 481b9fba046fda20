"""Settings of the aggregation server."""

from __future__ import annotations

import socket

from pydantic import Field

from services.kit.settings import ServiceSettings


class AggregationSettings(ServiceSettings):
    """Adds the replica's name and how much may be stored."""

    replica: str = Field(
        default_factory=lambda: socket.gethostname()[:40],
        description="Name of this process among its replicas; keep it over restarts.",
    )
    device_quota_bytes: int = Field(
        default=8 << 30, gt=0, description="What one device may have stored in open rounds, updates and letters."
    )
    publisher_quota_bytes: int = Field(default=64 << 30, gt=0, description="Models one publisher may have uploaded.")

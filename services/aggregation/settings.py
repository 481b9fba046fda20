"""Settings of the aggregation server."""

from __future__ import annotations

import socket

from pydantic import Field

from services.kit.settings import ServiceSettings


class AggregationSettings(ServiceSettings):
    """Adds the replica's name."""

    replica: str = Field(
        default_factory=lambda: socket.gethostname()[:40],
        description="Name of this process among its replicas; keep it over restarts.",
    )

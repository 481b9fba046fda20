"""Settings every service shares. Defaults work with an empty environment; `COTERIE_…` variables change them."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.kit.rpc import sockets


def _address(service: str) -> Any:
    description = f"Address of {service}: host:port, or unix:/path; by default its socket in the data folder."
    return Field(default_factory=lambda known: sockets.address(known["data_dir"], service), description=description)


class ServiceSettings(BaseSettings):
    """Settings of every service."""

    model_config = SettingsConfigDict(env_prefix="COTERIE_", frozen=True, extra="ignore")

    data_dir: Path = Field(default=Path(".coterie"), description="Folder of the embedded databases and blobs.")
    database_url: str = Field(
        default="", description="postgresql://user:password@host/name, shared by all services; empty = SQLite files."
    )
    blob_url: str = Field(default="", description="s3://bucket/prefix and the like; empty = the folder data_dir/blobs.")
    bind: str = Field(default="127.0.0.1", description="Address to listen on.")
    trust_address: str = _address("trust")
    topology_address: str = _address("topology")
    pricing_address: str = _address("pricing")
    aggregation_address: str = _address("aggregation")
    tls_dir: Path | None = Field(
        default=None,
        description="Folder with ca.pem, cert.pem and key.pem; needed unless gRPC is on Unix sockets.",
    )
    workers: int = Field(
        default=2, ge=1, le=64, description="Processes for plans and prices, and as many for what-if questions."
    )
    questions_per_caller: int = Field(default=8, ge=1, description="What-if questions one caller may ask at a time.")
    metrics_port: int = Field(default=0, description="Port of the Prometheus page; 0 = none.")
    otlp_endpoint: str = Field(default="", description="Collector of traces, http://host:4318; empty = no traces.")
    replica: str = Field(
        default_factory=lambda: socket.gethostname()[:40],
        description="Name of this process among its replicas; keep it over restarts.",
    )
    log_level: str = "INFO"
    drain_seconds: float = Field(default=10.0, description="How long open calls may take to end after SIGTERM.")
    insecure: bool = Field(default=False, description="Allow gRPC on ports without TLS: every caller is admin.")

    def database_for(self, service: str) -> str:
        """Return the SQLAlchemy URL of a service's database."""
        if not self.database_url:
            return f"sqlite:///{(self.data_dir / f'{service}.db').resolve()}"
        scheme, _, rest = self.database_url.partition("://")
        if scheme not in ("postgres", "postgresql", "postgresql+asyncpg"):
            raise ValueError(f"COTERIE_DATABASE_URL must start with postgresql://, not {scheme}://")
        return f"postgresql+asyncpg://{rest}"

    def listening_at(self, address: str) -> str:
        """Return where to listen for callers of `address`: that socket, or `bind` with that port."""
        return address if sockets.is_socket(address) else f"{self.bind}:{address.rpartition(':')[2]}"


class EdgeSettings(ServiceSettings):
    """Settings of processes at the edge: limits on callers before authentication."""

    max_header_bytes: int = Field(
        default=64 << 10, ge=48 << 10, description="Maximum size of a request's headers, in bytes."
    )
    header_seconds: float = Field(default=20.0, gt=0, description="Time to receive a request's headers, in seconds.")
    body_seconds: float = Field(default=60.0, gt=0, description="Time to receive the next piece of a body, in seconds.")
    max_connections: int = Field(
        default=8192, gt=0, description="Maximum concurrent connections; a full table closes the longest-idle one."
    )
    max_connections_per_address: int = Field(
        default=4096, ge=0, description="Maximum connections of one address; 0 = no limit."
    )
    trusted_proxies: str = Field(
        default="",
        description="Addresses and networks of trusted proxies, separated by commas: their X-Forwarded-For counts, and "
        "the limit per address does not apply to them.",
    )

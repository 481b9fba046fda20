"""Settings every service shares. Defaults work with an empty environment; `COTERIE_…` variables change them."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServiceSettings(BaseSettings):
    """What a process needs to know to take its place."""

    model_config = SettingsConfigDict(env_prefix="COTERIE_", frozen=True, extra="ignore")

    data_dir: Path = Field(default=Path(".coterie"), description="Folder of the embedded databases and blobs.")
    database_url: str = Field(
        default="", description="postgresql://user:password@host/name, shared by all services; empty = SQLite files."
    )
    blob_url: str = Field(default="", description="s3://bucket/prefix and the like; empty = the folder data_dir/blobs.")
    bind: str = Field(default="127.0.0.1", description="Address to listen on.")
    trust_address: str = Field(default="127.0.0.1:50051", description="Where the trust registry answers.")
    topology_address: str = Field(default="127.0.0.1:50052", description="Where the topology planner answers.")
    pricing_address: str = Field(default="127.0.0.1:50053", description="Where the pricing engine answers.")
    aggregation_address: str = Field(default="127.0.0.1:50054", description="Where the aggregation server answers.")
    tls_dir: Path | None = Field(
        default=None, description="Folder with ca.pem, cert.pem and key.pem; needed whenever gRPC leaves loopback."
    )
    metrics_port: int = Field(default=0, description="Port of the Prometheus page; 0 = none.")
    log_level: str = "INFO"
    drain_seconds: float = Field(default=10.0, description="How long open calls may take to end after SIGTERM.")
    insecure: bool = Field(default=False, description="Allow gRPC beyond loopback without TLS (a private network).")

    def database_for(self, service: str) -> str:
        """SQLAlchemy URL of a service's own database."""
        if not self.database_url:
            return f"sqlite+aiosqlite:///{(self.data_dir / f'{service}.db').resolve()}"
        scheme, _, rest = self.database_url.partition("://")
        if scheme not in ("postgres", "postgresql", "postgresql+asyncpg"):
            raise ValueError(f"COTERIE_DATABASE_URL must start with postgresql://, not {scheme}://")
        return f"postgresql+asyncpg://{rest}"

    def port_of(self, address: str) -> str:
        """`bind` with the port of `address`: where this process listens to be found there."""
        return f"{self.bind}:{address.rpartition(':')[2]}"

"""Settings of the trust registry; `COTERIE_…` variables change them."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from services.kit.settings import ServiceSettings


class TrustSettings(ServiceSettings):
    """What every service knows, and what trust is made of."""

    admin_key_file: Path | None = Field(
        default=None, description="File with an admin key to adopt (ck_….…); empty = make data_dir/admin.key."
    )
    heartbeat_flush_seconds: float = Field(default=2.0, gt=0, description="How often heartbeats reach the database.")

    @property
    def admin_key_path(self) -> Path:
        """Where the admin key is, or will be written."""
        return self.admin_key_file or self.data_dir / "admin.key"

"""Settings of the console in addition to those of every service."""

from __future__ import annotations

from pydantic import Field

from services.kit.runtime.settings import EdgeSettings

MINUTE = 60.0


class ConsoleSettings(EdgeSettings):
    """Settings of the web console."""

    console_port: int = Field(default=8090, ge=0, le=65535, description="Port of the console's pages.")
    gateway_url: str = Field(default="http://127.0.0.1:8080", description="Address of the gateway.")
    gateway_ca: str = Field(
        default="", description="File with the CA of the gateway's certificate; empty = the system's CAs."
    )
    console_url: str = Field(
        default="",
        description="Public address, such as https://console.example; empty = the requested host. With "
        "https, browsers send cookies over https only.",
    )
    console_idle_seconds: float = Field(default=60 * MINUTE, gt=0, description="Idle time after which a session ends.")
    console_session_seconds: float = Field(default=720 * MINUTE, gt=0, description="Maximum length of a session.")
    console_sign_ins_per_minute: int = Field(default=20, gt=0, description="Sign-in attempts per address.")

    @property
    def https(self) -> bool:
        """Whether browsers reach the console over https."""
        return self.console_url.startswith("https://")

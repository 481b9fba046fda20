"""What the console needs to know beside what every service knows."""

from __future__ import annotations

from pydantic import Field

from services.kit.runtime.settings import EdgeSettings

MINUTE = 60.0


class ConsoleSettings(EdgeSettings):
    """Settings of the web console."""

    console_port: int = Field(default=8090, ge=0, le=65535, description="Port of the console's pages.")
    gateway_url: str = Field(default="http://127.0.0.1:8080", description="Where the gateway answers.")
    gateway_ca: str = Field(
        default="", description="File with the CA of the gateway's certificate; empty = the system's."
    )
    console_url: str = Field(
        default="",
        description="Address people open, such as https://console.example; empty = whatever host they ask for. With "
        "https, cookies travel over https alone.",
    )
    console_idle_seconds: float = Field(default=60 * MINUTE, gt=0, description="A session ends after this long unused.")
    console_session_seconds: float = Field(default=720 * MINUTE, gt=0, description="A session ends after this long.")
    console_sign_ins_per_minute: int = Field(default=20, gt=0, description="Sign-ins tried from one address.")

    @property
    def https(self) -> bool:
        """Whether browsers reach the console over https."""
        return self.console_url.startswith("https://")

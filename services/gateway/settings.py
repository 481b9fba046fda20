"""What the gateway needs to know beside what every service knows."""

from __future__ import annotations

from pydantic import Field

from services.kit.runtime.settings import EdgeSettings

MEBIBYTE = 1 << 20


class GatewaySettings(EdgeSettings):
    """Settings of the REST edge."""

    gateway_port: int = Field(default=8080, ge=0, le=65535, description="Port of the REST API; 0 = any free one.")
    max_json_bytes: int = Field(default=MEBIBYTE, gt=0, description="Largest JSON body taken.")
    max_what_if_bytes: int = Field(default=16 * MEBIBYTE, gt=0, description="Largest what-if input taken.")
    max_model_bytes: int = Field(default=1024 * MEBIBYTE, gt=0, description="Largest model or update taken.")
    max_letter_bytes: int = Field(default=1024 * MEBIBYTE, gt=0, description="Largest sealed letter taken.")
    max_wrong_keys: int = Field(default=300, ge=0, description="Unknown keys per address and minute; 0 = no limit.")
    key_cache_seconds: float = Field(
        default=5.0, ge=0, le=5, description="How long another gateway's revocation of a key may go unnoticed here."
    )
    key_cache_size: int = Field(default=10_000, gt=0, description="API keys remembered at most.")

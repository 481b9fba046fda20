"""Settings of the gateway."""

from __future__ import annotations

from pydantic import Field

from services.kit.runtime.settings import EdgeSettings

MEBIBYTE = 1 << 20


class GatewaySettings(EdgeSettings):
    """Settings of the REST edge."""

    gateway_port: int = Field(default=8080, ge=0, le=65535, description="Port of the REST API; 0 = any free one.")
    max_json_bytes: int = Field(default=MEBIBYTE, gt=0, description="Maximum size of a JSON body, in bytes.")
    max_what_if_bytes: int = Field(
        default=16 * MEBIBYTE, gt=0, description="Maximum size of a what-if input, in bytes."
    )
    max_model_bytes: int = Field(
        default=1024 * MEBIBYTE, gt=0, description="Maximum size of a model or update, in bytes."
    )
    max_letter_bytes: int = Field(
        default=1024 * MEBIBYTE, gt=0, description="Maximum size of a sealed letter, in bytes."
    )
    max_wrong_keys: int = Field(default=300, ge=0, description="Unknown keys per address and minute; 0 = no limit.")
    key_cache_seconds: float = Field(
        default=5.0,
        ge=0,
        le=5,
        description="Lifetime of cached authentication, in seconds; a revocation elsewhere takes effect after it.",
    )
    key_cache_size: int = Field(default=10_000, gt=0, description="Maximum number of cached API keys.")

"""Settings of the pricing engine; `COTERIE_…` variables change them."""

from __future__ import annotations

from pydantic import Field

from services.kit.runtime.settings import ServiceSettings


class PricingSettings(ServiceSettings):
    """The settings of every service, and the platform's fee."""

    fee_parts_per_million: int = Field(
        default=0, ge=0, le=1_000_000, description="Fee on what a round pays, from the escrow, after the devices."
    )

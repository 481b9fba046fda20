"""Prices, accounts, payments."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from services.gateway.schemas.base import MOST_INT64, Body, Name


class NewDeposit(Body):
    """Credits for a publisher; repeating the same `key` changes nothing."""

    model_config = ConfigDict(json_schema_extra={"example": {"amount_microcredits": 5000000, "key": "invoice-1"}})

    amount_microcredits: Annotated[int, Field(ge=1, le=MOST_INT64)]
    key: Name

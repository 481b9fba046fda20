"""`what-if survey`: the accuracy a budget buys from correlated users in a file, and the prices that buy it. [CAPP]"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from pydantic import Field

from services.kit.runtime import whatif
from services.pricing.domain.collection import collect
from services.pricing.domain.correlated_users import (
    InvalidSurvey,
    Survey,
    accuracy,
    hidden_variances,
    privacy_cost,
    privacy_loss,
)
from services.pricing.domain.influence import Matrix


class Input(whatif.Input):
    """Keys of the contract; `variance_high` defaults to e^constant and `error` to √200."""

    correlation: list[list[float]]
    care: list[list[float]]
    constant: float = Field(default=10.0, le=700)
    budget: float = 50.0
    variance_low: float = Field(default=0.01, gt=0)
    variance_high: float | Literal["inf"] | None = None
    error: float = Field(default=math.sqrt(200.0), gt=0)
    variance_model: Literal["paper", "exact"] = "paper"
    prices: Literal["pivot", "even", "personal"] = "pivot"


def solve(given: Input) -> dict[str, Any]:
    """Return what can be collected; values that an infeasible budget or missing prices leave open are null."""
    correlation = _square("correlation", given.correlation)
    survey = Survey(
        hidden_variances(correlation, given.variance_model),
        _square("care", given.care),
        constant=given.constant,
        variance_low=given.variance_low,
        variance_high=math.exp(given.constant) if given.variance_high is None else float(given.variance_high),
    )
    collected = collect(survey, given.budget, given.prices)
    answer: dict[str, Any] = {"status": collected.status, "total_variance": None}
    answer |= dict.fromkeys(("variances", "base", "slopes", "payments", "privacy_loss", "utilities", "accuracy"))
    if not math.isnan(collected.total):
        answer["total_variance"] = collected.total
        answer["privacy_loss"] = privacy_loss(survey, collected.total)
        answer["accuracy"] = accuracy(collected.total, given.error)
    if collected.tariff is not None:
        answer["variances"] = collected.tariff.variances
        answer["base"] = collected.tariff.base
        answer["slopes"] = collected.tariff.slopes
        answer["payments"] = collected.tariff.payments
        answer["utilities"] = collected.tariff.payments - privacy_cost(survey, collected.total)
    return answer


def _square(name: str, rows: list[list[float]]) -> Matrix:
    n = len(rows)
    if n == 0:
        raise InvalidSurvey(f"{name} has no rows; a survey needs at least one user")
    for i, row in enumerate(rows):
        if len(row) != n:
            raise InvalidSurvey(f"{name} must be square: row {i} has {len(row)} entries, expected {n}")
    return np.array(rows, dtype=np.float64)

"""β/μ² is recovered from rounds simulated with it, with a calibrated standard error."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from services.kit.runtime import whatif
from services.pricing.domain.curvature import InvalidMeasurements, Measured, fit, noise_of
from services.pricing.domain.incentive_stackelberg import Data, accuracy_weights
from services.pricing.whatif import SOLVERS


def rounds(curvature: float, error: float = 0.0, seed: int = 0) -> list[Measured]:
    rng = np.random.default_rng(seed)
    made = []
    for t in range(1, 21):
        noise = float(rng.uniform(0.5, 3.0))
        loss = 0.3 + 1.5 / t + curvature * noise / t + error * rng.normal()
        made.append(Measured(t, noise, loss))
    return made


def test_noise_of_round_follows_from_accuracy_weights_and_budgets() -> None:
    """p = 100, S = 2, D = 10 and 30, ρ = ½ and 1: 400/1600 · (2 + 1) = 0.75, and Σ ε_i/ρ_i at β/μ² = 1 is the same."""
    assert noise_of(100.0, 2.0, [10, 30], [0.5, 1.0]) == pytest.approx(0.75)
    weights = accuracy_weights(Data((10, 30), (10.0, 30.0), 100.0, 2.0), 1.0)
    assert float(np.sum(weights / np.array([0.5, 1.0]))) == pytest.approx(0.75)


def test_curvature_start_and_best_loss_come_back() -> None:
    result = fit(rounds(0.4))
    assert (result.curvature, result.start, result.best_loss) == pytest.approx((0.4, 1.5, 0.3))
    assert result.status == "ok"
    assert result.rmse < 1e-9


def test_standard_error_covers_the_truth_as_often_as_claimed() -> None:
    """Within two standard errors in about 95 of 100; a loss measured worse is fitted worse."""
    fits = [fit(rounds(0.4, 0.02, seed)) for seed in range(100)]
    covered = sum(abs(item.curvature - 0.4) <= 2 * item.deviation for item in fits)
    assert covered >= 88
    assert fit(rounds(0.4, 0.2, 1)).deviation > fit(rounds(0.4, 0.02, 1)).deviation


def test_noise_without_effect_is_reported_as_flat() -> None:
    falling = [Measured(item.round, item.noise, item.loss - 0.8 * item.noise / item.round) for item in rounds(0.4)]
    result = fit(falling)
    assert (result.status, result.curvature) == ("flat", 0.0)


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        (rounds(0.4)[:3], "need at least 4 measured rounds"),
        ([Measured(t, 1.0, 1.0 / t) for t in range(1, 9)], "does not separate it from progress"),
        ([*rounds(0.4), Measured(0, 1.0, 1.0)], "rounds count from 1"),
        ([*rounds(0.4), Measured(1, math.nan, 1.0)], "noise is positive"),
        ([*rounds(0.4), Measured(1, 1.0, math.inf)], "a loss is finite"),
    ],
)
def test_rounds_that_do_not_determine_it_are_refused(measured: list[Measured], why: str) -> None:
    with pytest.raises(InvalidMeasurements, match=why):
        fit(measured)


def test_what_if_takes_deliveries_or_the_noise() -> None:
    def ask(question: dict[str, Any]) -> Any:
        return json.loads(whatif.answer(SOLVERS, "curvature", json.dumps(question)))

    plain = [{"round": item.round, "noise": item.noise, "loss": item.loss} for item in rounds(0.4)]
    assert ask({"measured": plain})["curvature"] == pytest.approx(0.4)
    # One device of 10 samples: x = 100 · 4/100/ρ = 4/ρ.
    sold = [
        {"round": item.round, "loss": item.loss, "delivered": [{"samples": 10, "budget": 4.0 / item.noise}]}
        for item in rounds(0.4)
    ]
    assert ask({"measured": sold, "elements": 100, "clip_norm": 2})["curvature"] == pytest.approx(0.4)

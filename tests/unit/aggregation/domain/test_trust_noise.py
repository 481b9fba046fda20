"""Noise by trust is the planner's, worked out a second time for what only an open round knows."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.aggregation.domain.trust_noise import TrustNoise
from services.topology.domain.quality import QualityModel


@pytest.mark.parametrize(("trust", "sigma"), [(1.0, 0.0), (0.7, 0.0), (0.7 - 1e-10, 0.0), (0.0, 0.6), (1e-9, 0.6)])
def test_none_from_the_threshold_on_and_the_largest_for_a_stranger(trust: float, sigma: float) -> None:
    assert TrustNoise(0.6).multiplier(trust) == sigma


def test_the_papers_calibration_is_its_equation() -> None:
    """ε(0.5) = 100·0.5/1.5 = 33.3…; σ = √(2 ln(1.25/10⁻⁶))/ε = 5.29880/33.3333 = 0.15896."""
    terms = TrustNoise.of({"privacy": {"noise_max": 0.6, "calibration": "paper"}, "topology": {"non_iid": 1.0}})
    assert terms.multiplier(0.5) == pytest.approx(0.15896, abs=1e-5)


TRUST = st.just(0.0) | st.floats(1e-6, 1.0)


@given(TRUST, st.sampled_from(["exact", "paper"]), st.floats(1, 200), st.floats(0.1, 3))
def test_it_is_what_the_planner_says_of_a_member_and_its_head(
    trust: float, calibration: Literal["paper", "exact"], scale: float, shift: float
) -> None:
    privacy = {"noise_max": 0.5, "trust_threshold": 0.6, "delta": 1e-5, "calibration": calibration}
    terms = TrustNoise.of({"privacy": privacy, "topology": {"budget_scale": scale, "budget_shift": shift}})
    planner = QualityModel(
        noise_max=0.5,
        trust_threshold=0.6,
        failure_probability=1e-5,
        calibration=calibration,
        budget_scale=scale,
        budget_shift=shift,
    )
    assert terms.multiplier(trust) == pytest.approx(float(planner.noise([trust])[0]), rel=1e-6, abs=1e-12)

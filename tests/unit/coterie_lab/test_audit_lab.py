"""The audit refutes no honest claim, and catches each fault that made claims false when it is put back."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom

from coterie.agent.report import Tensors
from coterie.privacy import releases
from coterie.privacy.accounting import Charge, gaussian_charge
from coterie.privacy.gaussian import exact_epsilon
from coterie.privacy.grid import noised_tensors
from coterie.privacy.ledger import PrivacyLedger, Receipt
from coterie.privacy.releases import Arrays, Change
from coterie.privacy.stream import Stream
from coterie.strategies import star
from coterie.strategies.context import RoundContext
from coterie_lab.audit import audit, clopper_pearson, lower_bound
from coterie_lab.canaries import MECHANISMS, _bound_to_bytes

pytestmark = pytest.mark.full

RUNS = 400
MORE = 1600
"""Enough to catch a fault."""


@pytest.mark.parametrize("name", MECHANISMS)
def test_no_claim_of_the_product_is_refuted(name: str) -> None:
    result = audit(name, MECHANISMS[name], 100 if name == "ledger" else RUNS)
    assert not result.is_false, result
    assert math.isfinite(result.claimed)


@pytest.mark.parametrize("name", ["laplace", "mesh"])
def test_an_audit_sees_where_its_canary_lies(name: str) -> None:
    """All in one element, since this noise is measured in L1: who looks along all of them would refute nothing."""
    result = audit(name, MECHANISMS[name], MORE)
    assert 0.25 * result.claimed < result.shown <= result.claimed


def test_doubles_in_the_place_of_the_grid_are_caught_by_their_low_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubles(share: float, variance: float, stream: Stream) -> float:
        uniform = (float(stream.words(1)[0] >> np.uint64(11)) + 0.5) * 2.0**-53
        return share + math.sqrt(variance) * float(ndtri(uniform))

    monkeypatch.setattr(releases, "noised_share", doubles)
    finding = audit("survey", MECHANISMS["survey"], MORE)
    assert finding.is_false
    assert finding.figure == "fineness"
    assert finding.shown > 1.5 * finding.claimed


def test_fresh_noise_for_one_charge_is_caught_by_averaging(monkeypatch: pytest.MonkeyPatch) -> None:
    charge = PrivacyLedger.charge

    def unbound(self: PrivacyLedger, asked: Charge, **options: Any) -> Receipt:
        return charge(self, replace(asked, digest=""), **options)

    monkeypatch.setattr(PrivacyLedger, "charge", unbound)
    finding = audit("ledger", _bound_to_bytes(), 300)
    assert finding.is_false
    assert finding.shown > 1.5 * finding.claimed


def test_a_price_for_left_out_that_is_called_one_for_replaced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(self: Change, task: str, round: int, purpose: str) -> Charge:
        return gaussian_charge(task, round, purpose, "device", self.multiplier, "replaced")

    monkeypatch.setattr(Change, "charge", mistaken)
    for name in ("gaussian", "star"):
        finding = audit(name, MECHANISMS[name], MORE)
        assert finding.is_false, finding
        assert finding.figure == "value"


def test_an_exact_figure_beside_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RoundContext, "figures", lambda self: self.learner.evaluate())
    for name in ("star", "clusters"):
        result = audit(name, MECHANISMS[name], MORE)
        assert result.is_false, result
        assert result.figure == "loss"


def test_a_decline_because_training_diverged_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def declining(context: RoundContext, received: Tensors, *, noised: bool) -> Arrays:
        return star.change_of(received, context.learner.parameters())

    monkeypatch.setattr(star, "trained_change", declining)
    finding = audit("star that diverges", MECHANISMS["star that diverges"], MORE)
    assert finding.is_false, finding
    assert finding.figure in ("declined", "value", "fineness")


def test_half_the_noise_is_caught_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "noised_tensors", lambda t, c, z, s: noised_tensors(t, c, z / 2.5, s))
    assert audit("gaussian", MECHANISMS["gaussian"], MORE).is_false


@pytest.mark.parametrize(("hits", "runs"), [(0, 40), (3, 40), (20, 40), (39, 40), (40, 40)])
def test_the_bounds_of_a_chance_are_those_of_the_binomial_itself(hits: int, runs: int) -> None:
    """At the lower bound this many hits or more have half the error probability; at the upper, this many or fewer."""
    low, high = clopper_pearson(hits, runs, 0.05)
    assert low == 0.0 if hits == 0 else binom.sf(hits - 1, runs, low) == pytest.approx(0.025)
    assert high == 1.0 if hits == runs else binom.cdf(hits, runs, high) == pytest.approx(0.025)


def test_bound_of_gaussian_is_below_its_true_epsilon_and_not_far_below() -> None:
    random = np.random.default_rng(5)
    there, away = random.normal(1.0, 1.0, 200_000), random.normal(0.0, 1.0, 200_000)
    shown = lower_bound(there, away, 0.01, 1e-3)
    assert 0.75 * exact_epsilon(1.0, 0.01) < shown < exact_epsilon(1.0, 0.01)
    assert lower_bound(away, away[::-1], 0.0, 1e-3) < 0.05
    assert lower_bound(np.ones(400), np.zeros(400), 0.0, 1e-3) > 3.0

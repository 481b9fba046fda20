"""What a task may ask of its secure sums, and the terms that follow."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from coterie.secure_sums.acceptance import Promise, check_terms
from coterie.secure_sums.grid import Extent, NoGrid
from coterie.secure_sums.terms import Terms
from services.aggregation.domain.secure_terms import Model, SumRules, draw_cohorts, least_survivors, make_terms
from services.aggregation.domain.sum_decisions import fault_of_sum
from services.aggregation.errors import BadTask
from services.kit.errors import InvalidInput
from tests.attacks.sum_fixture import MODEL, SumFixture, circle_of, myself, names


def test_without_a_word_sums_are_clear() -> None:
    assert SumRules.of({}) == SumRules()
    assert not SumRules.of({"sums": {"mode": "clear"}}).secure
    rules = SumRules.of({"sums": {"mode": "secure"}})
    assert (rules.secure, rules.clerks, rules.threshold, rules.unchecked) == (True, 4, 2, True)
    assert rules.patience_seconds(20.0) == 60.0
    assert rules.patience_seconds(600.0) == 300.0


@pytest.mark.parametrize(
    "section",
    [
        "secure",
        {"mode": "sure"},
        {"clerk": 4},
        {"clerks": 8},
        {"clerks": 4.5},
        {"clerks": True},
        {"threshold": 1},
        {"clerks": 3, "threshold": 4},
        {"threshold": 3, "clerks": 5, "colluders": 1},
        {"offer_seconds": 0},
        {"clerk_seconds": "60"},
        {"clerk_seconds": float("inf")},
        {"cohort_devices": 4},
        {"cohort_devices": -1},
        {"unchecked": 1},
    ],
    ids=str,
)
def test_rules_that_make_no_sense_are_refused(section: Any) -> None:
    with pytest.raises(InvalidInput):
        SumRules.of({"sums": section})


@pytest.mark.parametrize(
    ("devices", "quorum", "least", "colluders", "honest"),
    [
        (12, 0.65, 8, 1, 7),
        (50, 0.65, 33, 4, 29),
        (250, 0.65, 163, 17, 146),
        (1_000, 0.65, 650, 65, 585),
        (20, 0.55, 11, 2, 9),
    ],
)
def test_least_colluders_and_honest_as_specified(
    devices: int, quorum: float, least: int, colluders: int, honest: int
) -> None:
    """The specification's table of §13, and 0.55·20 = 11.000000000000002 in doubles."""
    rules = SumRules()
    assert least_survivors(quorum, devices) == least
    assert rules.assumed_colluders(least) == colluders
    assert rules.honest(least) == honest


def test_a_sum_without_a_certainly_honest_device_is_refused() -> None:
    with pytest.raises(BadTask, match="none is sure"):
        SumRules(colluders=5).honest(5)
    with pytest.raises(BadTask, match="at least 3"):
        least_survivors(0.5, 2)


def test_cohorts_cover_every_device_once_and_are_never_small() -> None:
    devices = names(23)
    assert draw_cohorts(devices, 0, 1, 1) == [devices]
    assert draw_cohorts(devices, 12, 1, 1) == [devices]
    cohorts = draw_cohorts(devices, 5, 1, 1)
    assert sorted(device for cohort in cohorts for device in cohort) == devices
    assert {len(cohort) for cohort in cohorts} == {5, 6}
    assert cohorts == draw_cohorts(list(reversed(devices)), 5, 1, 1)
    assert cohorts != draw_cohorts(devices, 5, 1, 2)


@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_terms_an_honest_platform_makes_are_taken_by_devices(tmp_path: Path, noise: float) -> None:
    sum_fixture = SumFixture(tmp_path, names(8))
    named = sum_fixture.terms().clerks
    terms = make_terms(
        sum_fixture.place,
        1,
        Model(MODEL, 5),
        sum_fixture.participants,
        named,
        SumRules(secure=True),
        quorum=0.65,
        clip_norm=0.3,
        noise_multiplier=noise,
        heaviest=1.0,
    )
    assert Terms.read(terms.text) == terms
    promise = Promise(4, 2, SumRules().assumed_colluders(terms.least), noise)
    check_terms(terms, sum_fixture.participants, myself("dev_07"), promise, circle_of(names(4)))


def test_terms_without_a_grid_are_refused(tmp_path: Path) -> None:
    sum_fixture = SumFixture(tmp_path, names(8))
    with pytest.raises(NoGrid):
        make_terms(
            sum_fixture.place,
            1,
            Model(hashlib.sha256(b"").hexdigest(), 10**8),
            sum_fixture.participants,
            sum_fixture.terms().clerks,
            SumRules(secure=True),
            quorum=0.65,
            clip_norm=1.0,
            noise_multiplier=1e6,
            heaviest=1.0,
        )


def test_sums_out_of_range_are_named_with_noise_and_without(tmp_path: Path) -> None:
    import numpy as np

    sum_fixture = SumFixture(tmp_path, names(8))
    terms = sum_fixture.terms()
    assert fault_of_sum(Extent.of(np.zeros(5, np.int64)), 5, terms) is None
    assert fault_of_sum(Extent.of(np.full(5, 2**62)), 5, terms) is not None

"""Privacy totals compose to the same ε as the device's own accounting."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.privacy import accounting
from coterie.privacy.accounting import Charge, total
from coterie.privacy.claims import charge_of, claim_of
from coterie.records.enums import PrivacyAdjacency, PrivacyMechanism, PrivacyUnit
from coterie.records.privacy import PrivacyClaim
from services.pricing.domain.ledger_privacy import TaskTotals, key_of, report, total_of

DELTA = 1e-6


def claimed(mechanism: str, parameter: float, rate: float = 0.0, steps: int = 0, adjacency: str = "") -> Charge:
    return charge_of(
        PrivacyClaim(
            mechanism=PrivacyMechanism(mechanism),
            parameter=parameter,
            unit=PrivacyUnit.EXAMPLE,
            sampling_rate=rate,
            steps=steps,
            adjacency=PrivacyAdjacency(adjacency),
        )
    )


def test_gaussian_rounds_compose_to_one_release() -> None:
    """Sixteen rounds of multiplier 4 are one of multiplier 1, whose ε at 1e-5 is 4.377 exactly."""
    sixteen = total_of(claimed("gaussian", 4.0, steps=16))
    assert (sixteen.mechanism, sixteen.rho, sixteen.steps) == ("gaussian", 0.5, 1)
    assert total([sixteen], 1e-5) == pytest.approx(4.377, abs=5e-4)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("gaussian"), st.floats(0.5, 50)),
            st.tuples(st.just("zcdp"), st.floats(1e-4, 1)),
            st.tuples(st.just("laplace"), st.sampled_from([0.1, 0.5])),
        ),
        max_size=8,
    )
)
def test_the_platform_agrees_with_the_device(releases: list[tuple[str, float]]) -> None:
    """ε of added-up totals = ε of the releases one by one."""
    make = {
        "gaussian": accounting.gaussian_charge,
        "zcdp": accounting.zcdp_charge,
        "laplace": accounting.laplace_charge,
    }
    own = [make[kind]("task", k, "update", "example", value) for k, (kind, value) in enumerate(releases)]
    claimed_charges = [charge_of(claim_of(charge)) for charge in own]
    assert total([total_of(charge) for charge in claimed_charges], DELTA) == pytest.approx(total(own, DELTA), rel=1e-9)


@pytest.mark.parametrize(
    ("mechanism", "parameter", "rate"),
    [
        ("gaussian", 0.0, 1.0),
        ("gaussian", -1.0, 1.0),
        ("gaussian", math.nan, 1.0),
        ("gaussian", math.inf, 1.0),
        ("gaussian", 1.0, 1.5),
        ("gaussian", 1.0, -0.5),
        ("magic\x00", 1.0, 1.0),
    ],
)
def test_an_impossible_claim_counts_as_no_noise(mechanism: str, parameter: float, rate: float) -> None:
    charge = claimed(mechanism, parameter, rate, 3)
    assert charge.mechanism == "raw"
    assert charge.unit == "example"
    assert total([total_of(charge)], DELTA) == math.inf


def test_settlement_of_0_1_0_is_recognised_and_adjacency_is_distinguished() -> None:
    """What was hashed then: mechanism, parameter, unit, rate (0 is 1) and steps (0 is 1)."""
    assert key_of(claimed("zcdp", 0.25)) == ["zcdp", 0.25, "example", 1.0, 1]
    assert key_of(claimed("gaussian", 0.1, 1.0, 7)) == ["gaussian", 0.1, "example", 1.0, 7]
    left_out = key_of(claimed("gaussian", 0.1, 1.0, 7, "left-out"))
    assert left_out == ["gaussian", 0.1, "example", 1.0, 7, "left-out"]
    assert key_of(claimed("gaussian", math.nan)) == ["raw", 0.0, "example", 1.0, 1]


def test_a_report_gives_each_task_and_all_together() -> None:
    quiet = TaskTotals("tsk_1", 2, (accounting.priced_charge("tsk_1", 0, "update", 0.01, "device"),))
    more = accounting.priced_charge("tsk_2", 0, "update", 0.5, "device")
    loud = TaskTotals("tsk_2", 1, (more, accounting.zcdp_charge("tsk_2", 0, "update", "example", 0.1)))
    over_all, (first, second) = report([quiet, loud], DELTA)
    assert first.epsilon < second.epsilon < over_all.epsilon
    assert (first.question.unit, second.question.unit, over_all.question.unit) == ("device", "example", "example")
    assert (report([], DELTA)[0].epsilon, report([], DELTA)[1]) == (0.0, [])


def test_a_report_says_both_adjacencies_in_words() -> None:
    one = TaskTotals("tsk_1", 1, (accounting.gaussian_charge("tsk_1", 0, "update", "device", 1.0),))
    _, (result,) = report([one], 1e-5)
    assert str(result) == (
        "ε = 4.377 for the whole device left out; 9.997 for the whole device replaced by any other (4 × ρ)"
    )

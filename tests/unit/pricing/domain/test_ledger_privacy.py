"""Privacy totals compose to what the device's own accounting says of the same releases."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.privacy import accounting
from services.pricing.domain.ledger_privacy import TaskTotals, Total, epsilon_of, read_charge, report, total_of

DELTA = 1e-6


def test_gaussian_rounds_compose_to_one_release() -> None:
    """Sixteen rounds of multiplier 4 are one of multiplier 1, whose ε at 1e-5 is 4.377 exactly."""
    total = total_of(read_charge("gaussian", 4.0, "example", 0.0, 16))
    assert (total.mechanism, total.amount) == ("gaussian", 0.5)
    assert epsilon_of([total], 1e-5) == pytest.approx(4.377, abs=5e-4)


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
    sums: dict[tuple[str, float], float] = {}
    for kind, value in releases:
        total = total_of(read_charge(kind, value, "example", 0.0, 0))
        sums[total.mechanism, total.parameter] = sums.get((total.mechanism, total.parameter), 0.0) + total.amount
    totals = [Total(kind, "example", parameter, 1.0, amount) for (kind, parameter), amount in sums.items()]
    assert epsilon_of(totals, DELTA) == pytest.approx(accounting.total(own, DELTA), rel=1e-9)


def test_sampled_rounds_agree_with_the_device_too() -> None:
    own = accounting.sampled_gaussian_charge("task", 1, "update", "example", 1.1, 0.01, 1000)
    total = total_of(read_charge("gaussian", 1.1, "example", 0.01, 1000))
    assert epsilon_of([total], DELTA) == pytest.approx(accounting.total([own], DELTA), rel=1e-12)
    assert epsilon_of([total], DELTA) < epsilon_of(
        [total_of(read_charge("gaussian", 1.1, "example", 1.0, 1000))], DELTA
    )


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
def test_a_claim_that_cannot_be_counts_as_no_noise(mechanism: str, parameter: float, rate: float) -> None:
    charge = read_charge(mechanism, parameter, "person", rate, 3)
    assert charge.mechanism == "raw"
    assert charge.unit == "example"
    assert epsilon_of([total_of(charge)], DELTA) == math.inf


def test_a_report_gives_each_task_and_all_together() -> None:
    quiet = TaskTotals("tsk_1", 2, (Total("gaussian", "device", 0.0, 1.0, 0.01),))
    loud = TaskTotals("tsk_2", 1, (Total("gaussian", "device", 0.0, 1.0, 0.5), Total("zcdp", "example", 0, 1, 0.1)))
    epsilon, each = report([quiet, loud], DELTA)
    assert each[0] < each[1] < epsilon
    assert (quiet.unit, loud.unit) == ("device", "example")
    assert report([], DELTA) == (0.0, [])

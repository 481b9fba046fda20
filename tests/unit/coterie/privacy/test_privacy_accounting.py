"""Composition of charges against dp-accounting and against what composition must satisfy."""

import dataclasses
import math
from collections.abc import Iterable

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.privacy import accounting, renyi
from coterie.privacy.accounting import Charge, Question, Unit, replaced
from coterie.privacy.gaussian import exact_epsilon

DELTA = 1e-6
WHOLE_ORDERS = [order for order in renyi.ORDERS if order == math.floor(order) and order <= 2048]


def total(charges: Iterable[Charge], delta: float, unit: Unit = "example") -> float:
    """Composition alone: every charge below is about an example left out."""
    return accounting.total(charges, delta, unit, "left-out")


def gaussian(multiplier: float, round: int = 0) -> Charge:
    return accounting.gaussian_charge("task", round, "update", "example", multiplier)


def laplace(epsilon: float, round: int = 0) -> Charge:
    return accounting.laplace_charge("task", round, "update", "example", epsilon, "left-out")


MULTIPLIERS = st.floats(0.5, 20.0)
CHARGES = st.one_of(
    MULTIPLIERS.map(gaussian),
    st.floats(0.01, 3.0).map(laplace),
    st.floats(1e-4, 1.0).map(lambda rho: accounting.zcdp_charge("task", 0, "answer", "example", rho)),
    st.floats(1e-4, 1.0).map(lambda rho: accounting.priced_charge("task", 0, "update", rho)),
)


def event_of(charge: Charge) -> dp_event.DpEvent:
    match charge.mechanism:
        case "gaussian":
            return dp_event.GaussianDpEvent(1.0 / math.sqrt(2.0 * charge.rho))
        case "zcdp":
            return dp_event.ZCDpEvent(charge.rho)
        case "laplace":
            return dp_event.LaplaceDpEvent(1.0 / charge.epsilon)
        case other:
            raise AssertionError(other)


@settings(max_examples=30, deadline=None)
@given(st.lists(CHARGES, min_size=1, max_size=12))
def test_random_mixes_cost_no_more_than_dp_accounting_says_by_orders(charges: list[Charge]) -> None:
    theirs = RdpAccountant(WHOLE_ORDERS)
    for charge in charges:
        theirs.compose(event_of(charge))
    assert total(charges, DELTA) <= theirs.get_epsilon(DELTA) * (1.0 + 1e-6) + 1e-9


@pytest.mark.parametrize(
    ("charges", "gap"),
    [
        ([gaussian(2.0), gaussian(5.0), gaussian(1.0)], 1.001),
        ([laplace(0.5)] * 8 + [gaussian(3.0)] * 4, 1.2),
        ([laplace(0.3)], 1.001),
        ([laplace(0.05)] * 200, 1.2),
    ],
)
def test_the_total_is_an_upper_bound_close_to_the_true_loss_distribution(charges: list[Charge], gap: float) -> None:
    """dp-accounting's privacy loss distributions are tight up to their grid."""
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for charge in charges:
        accountant.compose(event_of(charge))
    tight = accountant.get_epsilon(DELTA)
    ours = total(charges, DELTA)
    grid = 1e-3 * len(charges)
    assert tight <= ours + grid
    assert ours <= tight * gap + grid


@settings(max_examples=50, deadline=None)
@given(st.lists(MULTIPLIERS, min_size=1, max_size=10))
def test_gaussian_rounds_are_one_gaussian_round(multipliers: list[float]) -> None:
    """Σ 1/σᵢ² = 1/σ²: the composition of Gaussian releases is exactly one Gaussian release."""
    together = 1.0 / math.sqrt(sum(1.0 / m**2 for m in multipliers))
    assert total([gaussian(m) for m in multipliers], DELTA) == pytest.approx(exact_epsilon(together, DELTA), rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.lists(CHARGES, max_size=8), CHARGES, st.floats(0.001, 3.0))
def test_another_release_never_costs_less_than_nothing(charges: list[Charge], more: Charge, epsilon: float) -> None:
    """total is monotone; a release with pure ε adds at most ε (basic composition)."""
    before = total(charges, DELTA)
    assert total([*charges, more], DELTA) >= before - 1e-12
    assert total([*charges, laplace(epsilon)], DELTA) <= before + epsilon * (1.0 + 1e-9)


@settings(max_examples=50, deadline=None)
@given(st.lists(CHARGES, max_size=8).flatmap(lambda charges: st.tuples(st.just(charges), st.permutations(charges))))
def test_the_order_of_releases_does_not_matter(orders: tuple[list[Charge], list[Charge]]) -> None:
    assert total(orders[1], DELTA) == pytest.approx(total(orders[0], DELTA), rel=1e-9, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.lists(CHARGES, min_size=1, max_size=8), st.floats(1.5, 1e3))
def test_a_larger_delta_never_costs_more(charges: list[Charge], factor: float) -> None:
    assert total(charges, DELTA * factor) <= total(charges, DELTA)


def test_pure_releases_add_up_when_few() -> None:
    assert 0.7499 < total([laplace(0.25), laplace(0.5)], DELTA) <= 0.75


def test_many_pure_releases_cost_less_than_their_sum() -> None:
    assert total([laplace(0.01)] * 1000, DELTA) < 0.2 * 1000 * 0.01


def test_hiding_a_device_hides_its_examples_but_not_the_other_way_round() -> None:
    device, example = accounting.gaussian_charge("task", 0, "update", "device", 1.0), gaussian(1.0)
    assert total([device, example], DELTA, "example") < math.inf
    assert total([device], DELTA, "device") < total([device], DELTA, "example")  # an example makes another update
    assert total([device, example], DELTA, "device") == math.inf


def test_nothing_costs_nothing_and_raw_data_costs_everything() -> None:
    assert total([], DELTA) == 0.0
    assert total([accounting.raw_charge("task", 0, "letter")], DELTA) == math.inf
    assert total([gaussian(0.0)], DELTA) == math.inf
    assert total([accounting.priced_charge("task", 0, "update", 0.0)], DELTA) == 0.0


@pytest.mark.parametrize(
    "fields",
    [
        {"task": ""},
        {"round": -1},
        {"purpose": ""},
        {"rho": -1.0},
        {"steps": 0},
        {"unit": "person"},
        {"adjacency": ""},
    ],
)
def test_a_charge_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    good: dict[str, object] = {
        "task": "t",
        "round": 0,
        "purpose": "update",
        "mechanism": "gaussian",
        "unit": "device",
        "adjacency": "replaced",
    }
    Charge(**good)  # type: ignore[arg-type]  # fields are given by name and checked at run time
    with pytest.raises(ValueError):
        Charge(**(good | fields))  # type: ignore[arg-type]  # as above


def test_left_out_charge_at_multiplier_one_matches_the_replaced_audit() -> None:
    """4.38 claimed; an attacker who compares two updates of the clip norm, opposite each other, measured 9.75."""
    charge = accounting.gaussian_charge("task", 0, "update", "device", 1.0)
    assert accounting.total([charge], 1e-5, "device") == pytest.approx(4.377, abs=1e-3)
    assert accounting.total([charge], 1e-5, "device", "replaced") == pytest.approx(exact_epsilon(0.5, 1e-5))
    assert accounting.total([charge], 1e-5, "device", "replaced") > 9.75


@settings(max_examples=50, deadline=None)
@given(MULTIPLIERS)
def test_replacing_is_twice_the_distance(multiplier: float) -> None:
    """Gaussian: multiplier halved, ρ times 4. Laplace: ε doubled. A replaced charge stays as it is."""
    result = replaced(gaussian(multiplier))
    assert result.rho == pytest.approx(accounting.gaussian_charge("t", 0, "u", "example", multiplier / 2).rho)
    assert replaced(laplace(0.25)).epsilon == 0.5
    assert replaced(result) == result


@given(st.lists(CHARGES, max_size=6))
@settings(max_examples=30, deadline=None)
def test_example_of_device_is_hidden_at_price_of_device_replaced(charges: list[Charge]) -> None:
    of_devices = [dataclasses.replace(charge, unit="device") for charge in charges]
    as_example = accounting.total(of_devices, DELTA, "example", "left-out")
    assert as_example == accounting.total(of_devices, DELTA, "device", "replaced")
    assert as_example >= accounting.total(of_devices, DELTA, "device", "left-out") - 1e-12


def test_the_usual_questions_are_a_device_left_out_and_an_example_replaced() -> None:
    assert [str(Question.of(unit)) for unit in ("device", "example")] == [
        "the whole device left out",
        "one example replaced by any other",
    ]

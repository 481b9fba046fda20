"""Figures of model versions: weighted by samples measured, bounded, and of a panel that does not change."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from coterie.learning.metrics import better_of
from services.aggregation.domain.measurements import (
    Measurement,
    Voters,
    agreed,
    counted,
    draw_panel,
    figures,
    means,
    split,
)

SAMPLES = st.lists(st.integers(1, 10_000), min_size=1, max_size=20)
VALUES = st.floats(-100, 100, allow_nan=False)


def measurement(device: str, samples: float, **metrics: float) -> Measurement:
    return Measurement("tsk_1", 0, 3, device, samples, metrics, 1.0)


def test_a_mean_is_weighted_by_the_samples_each_measured() -> None:
    """(0.5·100 + 0.9·300)/400 = 0.8; only b reported a loss."""
    result = figures([measurement("a", 100, accuracy=0.5), measurement("b", 300, accuracy=0.9, loss=0.2)])
    assert result.metrics == pytest.approx({"accuracy": 0.8, "loss": 0.2})
    assert (result.devices, result.samples) == (2, 400.0)


def test_a_claim_of_many_samples_counts_up_to_ten_medians() -> None:
    """Claims 10, 10, 10 and a billion: the median is 10, so the liar counts 100, and its figure 100/130 of the mean."""
    result = figures([*(measurement(name, 10, accuracy=0.0) for name in "abc"), measurement("liar", 1e9, accuracy=1.3)])
    assert result.metrics["accuracy"] == pytest.approx(1.3 * 100 / 130)


def test_a_device_without_metrics_is_not_a_measurement() -> None:
    result = figures([measurement("a", 10), measurement("b", 10, loss=1.0)])
    assert (result.metrics, result.devices) == ({"loss": 1.0}, 1)
    assert figures([measurement("a", 10)]).metrics == {}


def test_the_samples_are_those_it_says_or_those_it_enrolled_with() -> None:
    assert split({"loss": 1.0, "samples": 7.0}, 99.0) == (7.0, {"loss": 1.0})
    assert split({"loss": 1.0}, 99.0) == (99.0, {"loss": 1.0})
    assert split({"loss": 1.0, "samples": -5.0}, 99.0) == (99.0, {"loss": 1.0})


def test_a_panel_alone_is_heard_where_it_measured() -> None:
    measured = [measurement("a", 10, loss=1.0), measurement("b", 10, loss=5.0)]
    assert figures(measured, {"a"}).metrics == {"loss": 1.0}
    assert figures(measured, {"elsewhere"}).metrics == {"loss": 3.0}


@given(SAMPLES, st.data())
def test_a_mean_lies_between_the_figures_it_is_of(samples: list[int], data: st.DataObject) -> None:
    """min x ≤ Σ w·x / Σ w ≤ max x for weights above 0."""
    values = data.draw(st.lists(VALUES, min_size=len(samples), max_size=len(samples)))
    result = means((float(w), {"x": v}) for w, v in zip(samples, values, strict=True))["x"]
    assert min(values) - 1e-9 <= result <= max(values) + 1e-9
    exact = math.fsum(w * v for w, v in zip(samples, values, strict=True)) / sum(samples)
    assert result == pytest.approx(exact, abs=1e-9)


@given(SAMPLES)
def test_no_device_counts_for_more_than_its_claim_or_ten_medians(samples: list[int]) -> None:
    claims = {str(place): float(claim) for place, claim in enumerate(samples)}
    result = counted(claims)
    middle = sorted(claims.values())[len(claims) // 2]
    assert all(result[device] <= claims[device] and result[device] <= 10 * middle for device in claims)


@given(st.sets(st.integers(0, 10_000), min_size=1, max_size=60), st.integers(0, 99), st.integers(1, 20))
def test_who_joins_moves_at_most_one_out_of_the_panel(numbers: set[int], seed: int, most: int) -> None:
    devices = [f"dev_{number}" for number in numbers]
    panel = draw_panel(devices, seed, most)
    joined = draw_panel([*devices, "dev_new"], seed, most)
    assert len(panel) == min(most, len(devices))
    assert len(panel - joined) <= 1
    assert joined - panel <= {"dev_new"}
    assert draw_panel(reversed(devices), seed, most) == panel


def test_figures_and_claims_at_end_of_all_numbers_leave_mean_that_is_one() -> None:
    """A liar's 1.8e308 would otherwise become infinity, which no database keeps, and its round never close."""
    most = sys.float_info.max
    result = figures(
        [measurement("a", 300, loss=most), measurement("b", 300, loss=most), measurement("c", 300, loss=1.0)]
    )
    assert result.metrics["loss"] == pytest.approx(most * (2 / 3))
    samples, _ = split({"samples": most, "loss": 1.0}, 5.0)
    alone = figures([measurement("a", samples, loss=-most)])
    assert (alone.metrics["loss"], math.isfinite(alone.samples)) == (-most, True)


def voters(*devices: str, **owners: str) -> Voters:
    return Voters(owners, {*devices, *owners})


@pytest.mark.parametrize(
    ("accuracies", "common"),
    [
        ([0.3], 0.3),
        ([0.3, 0.9], 0.3),
        ([0.3, 0.9, 0.5], 0.5),
        ([0.3, 0.9, 0.5, 0.7], 0.5),
        ([0.3, 0.9, 0.5, 0.7, 1.0], 0.7),
    ],
)
def test_owners_agree_on_what_more_than_half_of_them_have(accuracies: list[float], common: float) -> None:
    """Of two both, of four three: half is not more than half. A loss is agreed on from its own end."""
    measured = [
        measurement(str(place), 10, accuracy=value, loss=1.0 - value, f1=value)
        for place, value in enumerate(accuracies)
    ]
    result = agreed(measured, voters(*(item.device_id for item in measured)), better_of)
    assert result == pytest.approx({"accuracy": common, "f1": common, "loss": 1.0 - common})


def test_an_owner_s_devices_share_one_say() -> None:
    """b's three have a third of the say together; a's and c's figures are the others."""
    owners = {"a": "own_a", "b1": "own_b", "b2": "own_b", "b3": "own_b", "c": "own_c"}
    accuracy = {"a": 0.4, "b1": 1.0, "b2": 1.0, "b3": 1.0, "c": 0.5}
    measured = [measurement(device, 10, accuracy=value) for device, value in accuracy.items()]
    assert agreed(measured, Voters(owners, owners), better_of) == {"accuracy": 0.5}


def test_too_few_agree_on_nothing() -> None:
    measured = [measurement("a", 10, accuracy=1.0), measurement("b", 10, accuracy=1.0)]
    assert agreed(measured, voters("a", "b", "c"), better_of) == {}
    assert agreed(measured, voters("a", "b"), better_of) == {"accuracy": 1.0}
    third = [*measured, measurement("c", 10, loss=1.0)]
    assert agreed(third, voters("a", "b", "c"), better_of) == {}, "each figure needs a quorum of reports"
    one_owner = voters("d", "e", a="own_a", b="own_a", c="own_a")
    agreeing = [*measured, measurement("c", 10, accuracy=1.0)]
    assert agreed(agreeing, one_owner, better_of) == {}, "three devices, and one owner of three"
    assert agreed(agreeing, voters(a="own_a", b="own_a", c="own_a"), better_of) == {"accuracy": 1.0}


def test_a_panel_that_is_too_small_to_agree_hears_the_others_too() -> None:
    measured = [measurement(name, 10, loss=float(place)) for place, name in enumerate("abcdef")]
    all_voters = voters(*"abcdef")
    assert agreed(measured, all_voters, better_of, {"a", "b", "c"}) == {"loss": 1.0}
    assert agreed(measured, all_voters, better_of, {"a", "b"}) == {"loss": 3.0}


@given(st.lists(st.floats(0, 1), min_size=3, max_size=9), st.data())
def test_liars_with_half_the_weight_cannot_improve_a_metric(honest: list[float], data: st.DataObject) -> None:
    """min honest ≤ agreed ≤ max honest for fewer liars than honest owners, whatever they say; up to it for as many."""
    lies = data.draw(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=len(honest)))
    measured = [measurement(f"h{place}", 10, accuracy=value) for place, value in enumerate(honest)]
    measured += [measurement(f"l{place}", 1e9, accuracy=value) for place, value in enumerate(lies)]
    result = agreed(measured, voters(*(item.device_id for item in measured)), better_of)["accuracy"]
    assert result <= max(honest)
    assume(len(lies) < len(honest))
    assert result >= min(honest)

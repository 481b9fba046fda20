"""The longest update each strategy takes: worked by hand, and honest updates drawn at random stay within."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.records.enums import Form, ParticipationState, PrivacyUnit, Role
from coterie.strategies import head_checks as checks
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.domain.accumulator import Accumulator
from services.aggregation.domain.layout import Layout, parse
from services.aggregation.domain.plausibility import usual_norm
from services.aggregation.domain.records import Delivery, Participation
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.strategies import strategy_for
from services.aggregation.strategies.base import Strategy
from services.aggregation.strategies.roster import Roster, Update

TAIL = math.sqrt(2.0 * math.log(1e9))
ROUNDED = 1.001


def strategy_of(axes: str, training: dict[str, Any] | None = None, **parameters: Any) -> Strategy:
    topology, privacy, incentive = axes.split()
    specification = TaskSpecification(
        "t",
        topology=topology,
        privacy=privacy,
        incentive=incentive,
        training_json=json.dumps(training or {}),
        parameters_json=json.dumps(parameters),
    )
    return strategy_for(specification)


def update(items: dict[str, pb.WorkItem], elements: int, members: tuple[str, ...] = (), form: str = "mean") -> Update:
    reports = tuple(
        {"device_id": m, "outcome": ParticipationState.DELIVERED, "note": "", "weight": 0.0} for m in members
    )
    delivery = Delivery("tsk", 1, "d", "", 1, Form(form), 1.0, {}, 0, 0.0, members=reports)
    roster = Roster(items, dict.fromkeys(items, ParticipationState.ASSIGNED), dict.fromkeys(items, 50))
    return Update(delivery, roster, Layout((), 0, 0), lambda start, length: b"", elements, 1.0)


def alone(noise: float, elements: int) -> Update:
    return update({"d": pb.WorkItem(role=words.ROLE_SOLO, noise_multiplier=noise)}, elements)


@pytest.mark.parametrize("axes", ["star none none", "cells none none", "clusters none payoff"])
def test_without_clipping_the_usual_norm_bounds_an_update(axes: str) -> None:
    assert strategy_of(axes).delivery.norm_limit(alone(0.0, 100)) == math.inf


def test_where_a_whole_change_is_clipped_the_bound_is_clip_and_noise() -> None:
    """S = 2, σ = 0.5, d = 100: 2(1 + 0.5(10 + t))."""
    expected = 2.0 * (1.0 + 0.5 * (10.0 + TAIL)) * ROUNDED
    for axes in ("star uniform none", "cells uniform none"):
        assert strategy_of(axes, {"clip_norm": 2.0}).delivery.norm_limit(alone(0.5, 100)) == pytest.approx(expected)
    cells = strategy_of("cells optimised none", privacy={"clip": 2.0})
    assert cells.delivery.norm_limit(alone(0.5, 100)) == pytest.approx(expected)


def test_where_examples_are_clipped_the_bound_is_that_of_all_steps() -> None:
    """3 steps of 0.1 on 50 samples, M = 2, z = 5: 0.1 · 3 · 2(1 + 5/50 · (10 + t))."""
    specification = TaskSpecification(
        "t",
        topology="cells",
        privacy="optimised",
        incentive="none",
        privacy_unit=PrivacyUnit.EXAMPLE,
        training_json='{"epochs": 3, "learning_rate": 0.1}',
        parameters_json='{"privacy": {"clip": 2.0}}',
    )
    expected = 0.1 * 3 * 2.0 * (1.0 + 5.0 / 50 * (10.0 + TAIL)) * ROUNDED
    assert strategy_for(specification).delivery.norm_limit(alone(5.0, 100)) == pytest.approx(expected)


def test_a_head_s_sum_is_bounded_by_the_mean_of_its_members_bounds() -> None:
    """q = 60 and 30 without noise, 10 of a member that may use all of σ = 0.6; alone the head noises so, too."""
    items = {
        "d": pb.WorkItem(
            role=words.ROLE_HEAD,
            self_weight=60.0,
            peers=[pb.Peer(device_id="m", weight=30.0), pb.Peer(device_id="n", weight=10.0)],
        ),
        "m": pb.WorkItem(role=words.ROLE_MEMBER),
        "n": pb.WorkItem(role=words.ROLE_MEMBER, noise_multiplier=0.2),
    }
    strategy = strategy_of("clusters trust payoff", privacy={"noise_max": 0.6})
    noised = 1.0 + 0.6 * (10.0 + TAIL)
    result = strategy.delivery.norm_limit(update(items, 100, ("m", "n"), "sum"))
    assert result == pytest.approx((90.0 + 10.0 * noised) / 100.0 * ROUNDED)
    assert strategy.delivery.norm_limit(update(items, 100, ("m",), "sum")) == pytest.approx(ROUNDED)
    assert strategy.delivery.norm_limit(update(items, 100)) == pytest.approx(noised * ROUNDED)


@given(st.integers(0, 2**32), st.integers(1, 2000), st.floats(0.05, 3.0), st.floats(0.1, 10.0))
def test_honest_noise_stays_within(seed: int, elements: int, noise: float, clip: float) -> None:
    rng = np.random.default_rng(seed)
    change = rng.normal(size=elements)
    change *= clip / np.linalg.norm(change)
    delivered = change + rng.normal(scale=noise * clip, size=elements)
    strategy = strategy_of("star uniform none", {"clip_norm": clip})
    assert np.linalg.norm(delivered) <= strategy.delivery.norm_limit(alone(noise, elements))


def part(device: str, norm: float, digest: str = "", line: int = 0, state: str = "delivered") -> Participation:
    states = ParticipationState(state)
    return Participation(
        "t",
        1,
        device,
        "o",
        Role.SOLO,
        states,
        9,
        b"",
        form=Form.MEAN,
        norm=norm,
        digest=digest or device,
        model_index=line,
    )


def test_in_round_one_what_is_longer_than_ten_times_median_does_not_count() -> None:
    """Median of 1, 2, 3, 4 and 31 is 3; of the other line, one update alone, nothing can be said."""
    parts = [*(part(f"d{k}", float(k)) for k in (1, 2, 3, 4)), part("long", 31.0), part("other", 1e9, line=1)]
    assert list(strategy_of("star none none").combination.rejections(parts, {})) == ["long"]
    assert strategy_of("star none none").combination.rejections([*parts[:4], part("just", 30.0)], {}) == {}
    strict = strategy_of("star none none", bounds={"norm_times": 5})
    assert list(strict.combination.rejections([*parts[:4], part("just", 16.0)], {})) == ["just"]


@given(st.permutations(range(6)), st.lists(st.floats(1e-6, 1e6), min_size=6, max_size=6))
def test_who_came_first_makes_no_difference(order: list[int], norms: list[float]) -> None:
    strategy, parts = strategy_of("star none none"), [part(f"d{k}", norm) for k, norm in enumerate(norms)]
    assert (
        strategy.combination.rejections(parts, {}).keys()
        == strategy.combination.rejections([parts[k] for k in order], {}).keys()
    )


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=2))
def test_of_one_or_two_updates_none_is_too_long(norms: list[float]) -> None:
    assert (
        strategy_of("star none none").combination.rejections([part(f"d{k}", norm) for k, norm in enumerate(norms)], {})
        == {}
    )


def test_the_next_round_s_bound_comes_from_what_was_accepted() -> None:
    parts = [
        part("a", 1.0),
        part("b", 3.0),
        part("zero", 0.0),
        part("out", 99.0, state="rejected"),
        part("c", 7.0, line=1),
    ]
    assert strategy_of("star none none").combination.next_norm_bounds(parts) == {"0": 20.0, "1": 70.0}
    assert strategy_of("star uniform none").combination.next_norm_bounds(parts) == {}
    assert usual_norm([0.0, 0.0]) == 0.0


def test_all_holders_of_same_bytes_go_without_where_something_is_earned() -> None:
    parts = [part("a", 1.0, "x"), part("b", 1.0, "y"), part("c", 1.0, "x")]
    for axes in ("star priced stackelberg", "star priced correlated", "clusters trust payoff", "clusters none none"):
        assert list(strategy_of(axes).combination.rejections(parts, {})) == ["a", "c"]
    assert strategy_of("star none none").combination.rejections(parts, {}) == {}


def test_a_head_refuses_a_member_that_would_make_its_sum_too_long() -> None:
    usual = [np.ones(4), np.full(4, 2.0)]
    assert checks.long(np.full(4, 19.0), usual) == ""
    assert "4 is usual" in checks.long(np.full(4, 21.0), usual)


def _slice(data: bytes, start: int, length: int) -> bytes:
    return data[start : start + length]


def test_a_task_warns_of_dissimilar_updates_but_not_of_similar_ones() -> None:
    """Model 0: u = 3 and 1, ζ₂ = 1/4. Model 1: u = 2 and 2, ζ₂ = 0, a descent of η‖G‖² = 0.5 · (2 / 0.5)² = 8."""
    specification = TaskSpecification(
        "t",
        topology="cells",
        privacy="none",
        incentive="none",
        model_digests=("m", "n"),
        training_json='{"learning_rate": 0.5}',
    )
    layout = parse(b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 8 + 54 + 4)
    participations, sums = [], {}
    for line, values in enumerate(([3.0, 1.0], [2.0, 2.0])):
        sums[line] = Accumulator(layout, 30, 2)
        for number, value in enumerate(values):
            data = b"\0" * layout.header_bytes + np.array([value], "<f4").tobytes()
            norm = sums[line].fold(layout, partial(_slice, data), 1.0)
            participations.append(
                Participation(
                    "tsk",
                    1,
                    f"d{line}{number}",
                    "own",
                    Role.SOLO,
                    ParticipationState.DELIVERED,
                    10,
                    pb.WorkItem().SerializeToString(),
                    weight=1.0,
                    norm=norm,
                    model_index=line,
                )
            )
    strategy = strategy_for(specification)
    result = strategy.combination.metrics(participations, sums)
    assert result["dissimilarity[0]"] == pytest.approx(0.25)
    assert result["dissimilarity[1]"] == pytest.approx(0.0, abs=1e-9)
    assert result["descent[1]"] == pytest.approx(8.0)
    (why,) = strategy.combination.convergence_warnings(result)
    assert why.startswith("model 0: its updates are dissimilar by ζ₂ ≤ 0.25")
    (costly,) = strategy.combination.convergence_warnings(
        {"dissimilarity[1]": 0.0, "descent[1]": 1.0, "noise_term[1]": 2.0}
    )
    assert "at most the cost of its noise" in costly
    assert (
        strategy_for(
            TaskSpecification("t", topology="star", privacy="none", incentive="none")
        ).combination.convergence_warnings(result)
        == []
    )

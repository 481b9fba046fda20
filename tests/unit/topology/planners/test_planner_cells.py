"""The planner of cells: served devices, their noise, and the reasons of the others."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.parameters.privacy import OptimisedPrivacy
from coterie.parameters.topology import RadioParameters
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.trust.v1 import trust_pb2
from services.kit.rpc.parameters import BadParameters, to_struct
from services.topology.domain.cell_learning import PolicyForAnotherLayout, policy_for, train
from services.topology.domain.cell_learning_config import LearningConfig
from services.topology.domain.cell_noise import unbounded_noise, zcdp_budget
from services.topology.domain.radio import draw_delays
from services.topology.errors import CannotPlan
from services.topology.planners.cell_network import layout_fingerprint, network, population
from services.topology.planners.cells import CellInputs, CellsPlanner, noise_weights
from services.topology.usecases.policies import Policies
from services.topology.usecases.stations import Stations

PLANNER = CellsPlanner(cast(Policies, None), cast(Stations, None))  # both are asked in `gather` alone


def cell(name: str = "roof", x: float = 0.0, **changes: Any) -> pb.Cell:
    values: dict[str, Any] = {
        "blocks": 4,
        "power_watts": 0.01,
        "bandwidth_hertz": 150e3,
        "delay_limit_seconds": 0.4,
        "radius_metres": 300.0,
    }
    return pb.Cell(id=name, x_metres=x, **(values | changes))


def request(
    devices: dict[str, tuple[int, int]],
    parameters: dict[str, Any] | None = None,
    *,
    privacy: str = "optimised",
    unit: words.PrivacyUnit.ValueType = words.PRIVACY_UNIT_EXAMPLE,
    number: int = 1,
) -> pb.MakePlanRequest:
    """A request for devices, each with (samples, model)."""
    return pb.MakePlanRequest(
        task_id="tsk_1",
        topology="cells",
        privacy=privacy,
        parameters=to_struct(parameters or {}),
        participants=[
            pb.Participant(device_id=name, samples=samples, model_index=model)
            for name, (samples, model) in devices.items()
        ],
        round=number,
        models=2,
        privacy_unit=unit,
    )


def inputs(cells: list[pb.Cell], places: dict[str, float | None]) -> CellInputs:
    """Devices on a line east of the origin; None = position unknown."""
    devices = {
        name: trust_pb2.Device(id=name, location=None if x is None else trust_pb2.Location(x_metres=x))
        for name, x in places.items()
    }
    return CellInputs(cells, devices, 2, layout_fingerprint(cells, 2, RadioParameters()), None)


def by_id(plan: pb.Plan) -> dict[str, pb.Assignment]:
    return {assignment.device_id: assignment for assignment in plan.assignments}


def test_the_multiplier_is_the_solved_noise_on_a_sum_over_the_clip_norm() -> None:
    """X = 50, 100; M = 1, d = 1, L = 10, γ = 0.01: σ² = 2 √(0.1 (1/2500 + 1/10000)) = 0.0141421, z = σ X."""
    plan = PLANNER.plan(request({"a": (50, 0), "b": (100, 1)}), inputs([cell()], {"a": 50.0, "b": 60.0}), None)
    sigma = math.sqrt(2 * math.sqrt(0.1 * 5e-4))
    assignments = by_id(plan)
    assert assignments["a"].noise_multiplier == pytest.approx(sigma * 50)
    assert assignments["b"].noise_multiplier == pytest.approx(sigma * 100)
    rho = zcdp_budget([sigma, sigma], [50, 100], 1.0)
    assert [2 / assignments[name].noise_multiplier ** 2 for name in "ab"] == pytest.approx(list(rho))
    assert [assignment.role for assignment in plan.assignments] == [words.ROLE_SOLO, words.ROLE_SOLO]
    assert {assignments["a"].block, assignments["b"].block} < {0, 1, 2, 3}
    assert plan.round_seconds == max(assignment.upload_seconds for assignment in plan.assignments) <= 0.4


def test_hiding_a_whole_device_counts_it_as_one_sample() -> None:
    plan = PLANNER.plan(
        request({"a": (50, 0), "b": (100, 1)}, unit=words.PRIVACY_UNIT_DEVICE),
        inputs([cell()], {"a": 50.0, "b": 60.0}),
        None,
    )
    expected = unbounded_noise([1.0, 1.0], noise_weights(OptimisedPrivacy())).noise
    assert [assignment.noise_multiplier for assignment in plan.assignments] == pytest.approx(list(expected))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=4), st.floats(1e-3, 10.0), st.floats(1.0, 50.0))
def test_budgets_stay_within_their_bounds(samples: list[int], least: float, ratio: float) -> None:
    """least_budget ≤ 2/z² ≤ most_budget for every served device."""
    privacy = {"least_budget": least, "most_budget": least * ratio}
    devices = {f"d{i}": (count, 0) for i, count in enumerate(samples)}
    plan = PLANNER.plan(request(devices, {"privacy": privacy}), inputs([cell()], dict.fromkeys(devices, 80.0)), None)
    for assignment in plan.assignments:
        assert least * (1 - 1e-9) <= 2 / assignment.noise_multiplier**2 <= least * ratio * (1 + 1e-9)


def test_unserved_devices_get_the_reason() -> None:
    devices = {"near": (50, 0), "far": (50, 0), "lost": (50, 1), "empty": (0, -1), "other": (50, 1)}
    places = {"near": 50.0, "far": 900.0, "lost": None, "empty": 60.0, "other": 70.0}
    assignments = by_id(PLANNER.plan(request(devices), inputs([cell(models=[0])], places), None))
    assert assignments["near"].role == words.ROLE_SOLO
    reasons = {
        name: assignment.because for name, assignment in assignments.items() if assignment.role == words.ROLE_IDLE
    }
    assert reasons == {
        "far": "out of range: roof, the nearest cell, is 900 m away and serves 300 m",
        "lost": "its position is not known: set it with PATCH /v1/devices/{id} (location)",
        "empty": "it has no data for any model",
        "other": "no cell in range serves its model 1",
    }
    assert all(assignments[name].group == assignments[name].block == -1 for name in reasons)


def test_reasons_distinguish_the_delay_limit_from_missing_blocks() -> None:
    wide = cell(radius_metres=5000.0, blocks=1)
    devices = {"a": (90, 0), "b": (50, 0), "slow": (70, 0)}
    assignments = by_id(PLANNER.plan(request(devices), inputs([wide], {"a": 50.0, "b": 60.0, "slow": 3000.0}), None))
    assert assignments["a"].role == words.ROLE_SOLO
    assert assignments["b"].because == "no block left: those it could use went to others"
    assert assignments["slow"].because.startswith("over the delay limit: ")


def test_round_without_eligible_devices_is_refused_with_reason_counts() -> None:
    with pytest.raises(CannotPlan, match=r"1 of unknown position, 2 out of range"):
        PLANNER.plan(
            request({"a": (9, 0), "b": (9, 0), "c": (9, 0)}), inputs([cell()], {"a": 1e4, "b": 2e4, "c": None}), None
        )


def test_unknown_identities_are_served_by_data_share() -> None:
    """One block, a cell for model 0 alone: of two devices without a model the one with more data is served."""
    assignments = by_id(
        PLANNER.plan(
            request({"small": (10, -1), "large": (90, -1)}),
            inputs([cell(blocks=1, models=[0])], {"small": 50.0, "large": 50.0}),
            None,
        )
    )
    assert (assignments["large"].role, assignments["small"].role) == (words.ROLE_SOLO, words.ROLE_IDLE)


def test_waiting_raises_a_devices_claim_until_it_is_served() -> None:
    """Shares 0.7 and 0.3 on one block, fairness 0.5: 0.3 · (1 + 0.5 n) passes 0.7 after three rounds of waiting."""
    devices, given_ = {"a": (70, 0), "b": (30, 0)}, inputs([cell(blocks=1)], {"a": 50.0, "b": 50.0})
    previous, served = None, []
    for number in range(1, 6):
        previous = PLANNER.plan(request(devices, number=number), given_, previous)
        served += [assignment.device_id for assignment in previous.assignments if assignment.role == words.ROLE_SOLO]
    assert served == ["a", "a", "a", "b", "a"]
    previous, served = None, []
    for number in range(1, 6):
        previous = PLANNER.plan(request(devices, {"topology": {"fairness": 0}}, number=number), given_, previous)
        served += [assignment.device_id for assignment in previous.assignments if assignment.role == words.ROLE_SOLO]
    assert served == ["a"] * 5


@pytest.mark.parametrize("policy", ["matching", "greedy", "random"])
def test_fading_follows_seed_and_round_so_that_a_plan_can_be_repeated(policy: str) -> None:
    devices = {f"d{i}": (20 + i, i % 2) for i in range(10)}
    given_ = inputs([cell(), cell("hill", 200.0, blocks=2)], {name: 20.0 * i for i, name in enumerate(devices)})
    parameters = {"topology": {"policy": policy, "seed": 4}}
    first = PLANNER.plan(request(devices, parameters), given_, None)
    assert PLANNER.plan(request(devices, parameters), given_, None) == first
    assert PLANNER.plan(request(devices, parameters, number=2), given_, None) != first
    served = [
        (assignment.group, assignment.block) for assignment in first.assignments if assignment.role == words.ROLE_SOLO
    ]
    assert len(served) == len(set(served)) == 6
    details = first.cell_details
    assert [(item.id, item.served) for item in details.cells] == [("roof", 4), ("hill", 2)]
    assert details.reward <= details.matching_reward + 1e-9


def test_other_privacies_give_the_noise_they_promise() -> None:
    given_ = inputs([cell()], {"a": 50.0})
    assert PLANNER.plan(request({"a": (5, 0)}, privacy="none"), given_, None).assignments[0].noise_multiplier == 0
    uniform = request({"a": (5, 0)}, {"privacy": {"noise_multiplier": 3.0}}, privacy="uniform")
    assert PLANNER.plan(uniform, given_, None).assignments[0].noise_multiplier == 3.0


def test_parameters_are_checked_when_a_task_is_made() -> None:
    filled = PLANNER.check("optimised", {"topology": {"policy": "greedy"}})
    assert filled["topology"]["identity_weight"] == 0.5
    assert filled["privacy"]["privacy_weight"] == 0.01
    for wrong, what in (
        ({"topology": {"policy": "best"}}, "topology.policy"),
        ({"topology": {"lambda": 1}}, "lambda"),
        ({"topology": {"payload_bits": 0}}, "payload_bits"),
        ({"privacy": {"privacy_weight": 0}}, "privacy_weight"),
        ({"privacy": {"least_budget": 2, "most_budget": 1}}, "least_budget"),
    ):
        with pytest.raises(BadParameters, match=what):
            PLANNER.check("optimised", wrong)
    with pytest.raises(BadParameters, match="takes privacy"):
        PLANNER.check("trust", {})


def test_a_trained_policy_schedules_devices_it_never_saw() -> None:
    cells = [cell(), cell("hill", 400.0)]
    known = network(cells, population(cells, 8, 2, np.random.default_rng(1)), 2, RadioParameters())
    retained: dict[str, Any] = {}
    config = LearningConfig(named=False, steps=10, epoch=10, batch=8, evaluation_states=4, width=8)
    train(known, config, 1, save=lambda step, tensors: retained.update(tensors))
    strangers = network(cells, population(cells, 5, 2, np.random.default_rng(2)), 2, RadioParameters())
    delay = draw_delays(strangers.layout, np.random.default_rng(3), 1)[0]
    assert policy_for(strangers, retained).picks(strangers, delay).any()
    with pytest.raises(PolicyForAnotherLayout, match="2 stations, there are 1"):
        policy_for(
            network(cells[:1], population(cells, 5, 2, np.random.default_rng(2)), 2, RadioParameters()), retained
        )

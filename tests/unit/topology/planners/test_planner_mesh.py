"""The mesh planner: social graph and times from the registry, plans kept, planned around, and explained."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.parameters.topology import MeshParameters
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.trust.v1 import trust_pb2
from services.gateway.wire.convert import to_json
from services.kit.rpc.parameters import BadParameters
from services.kit.rpc.trust_matrix import Matrix
from services.topology.domain.betta_fast import plan_mesh
from services.topology.domain.betta_network import DisconnectedSocialGraph, MeshNetwork, MeshRules
from services.topology.planners.betta_inputs import MeshInputs, batch_seconds, degree_cap, link_seconds, trusted_pairs
from services.topology.planners.mesh import MeshPlanner, plan_with_bridges

PLANNER = MeshPlanner()


def device(name: str, link: str = "wifi", **abilities: Any) -> trust_pb2.Device:
    return trust_pb2.Device(id=name, name=name, capabilities=trust_pb2.Capabilities(link_class=link, **abilities))


def inputs(
    trusted: Sequence[tuple[int, int]],
    devices: int,
    *,
    ids: Sequence[str] | None = None,
    seconds: Any = None,
    rules: MeshRules | None = None,
    **changes: Any,
) -> MeshInputs:
    names = tuple(ids or [f"dev_{number}" for number in range(devices)])
    times = np.ones((devices, devices)) if seconds is None else np.array(seconds, dtype=float)
    network = MeshNetwork.build(devices, trusted, times, [1.0] * devices, samples=[500] * devices)
    return MeshInputs(names, names, network, rules or MeshRules(transfers="shared"), MeshParameters(**changes))


def plan(given: MeshInputs, previous: pb.Plan | None = None) -> pb.Plan:
    return PLANNER.plan(pb.MakePlanRequest(task_id="t", keep_if_stable=True), given, previous)


def details(made: pb.Plan) -> dict[str, Any]:
    """As REST shows them."""
    return dict(to_json(made)["details"])


def pairs(made: pb.Plan) -> set[tuple[str, str]]:
    return {(s.device_id, n.device_id) for s in made.assignments for n in s.neighbours}


# --- times and trust --------------------------------------------------------------------------------------------------


def test_wifi_and_lora_carry_42_kilobytes_in_the_papers_seconds() -> None:
    """[BETTA] §IV-A: 0.004654 s over Wi-Fi, 8.96 s over LoRa; the slower end counts."""
    seconds = link_seconds([device("a"), device("b"), device("c", "lora")], MeshParameters(), {}, 42_000)
    assert seconds[0, 1] == pytest.approx(0.004654, abs=5e-7)
    assert seconds[0, 2] == seconds[2, 0] == pytest.approx(8.96)
    assert not seconds.diagonal().any()


def test_what_was_measured_counts_before_what_was_declared() -> None:
    devices = [device("a"), device("b", "lora"), device("c", "lora", seconds_per_megabyte=2.0)]
    parameters, both = MeshParameters(message_bytes=1_000_000), {("a", "b"): 0.5, ("b", "a"): 0.4, ("a", "gone"): 9.0}
    seconds = link_seconds(devices, parameters, both, 42_000)
    assert seconds[0, 1] == seconds[1, 0] == 0.5
    assert seconds[0, 2] == pytest.approx(2.0)
    declared = link_seconds(devices, dataclasses.replace(parameters, times="declared"), both, 42_000)
    assert declared[0, 1] == pytest.approx(8e6 / 37.5e3)


def test_what_one_end_measured_makes_a_link_slower_and_never_faster() -> None:
    devices, parameters = [device("a"), device("b"), device("c")], MeshParameters(message_bytes=1_000_000)
    usual = 8e6 / 72.2e6
    seconds = link_seconds(
        devices, parameters, {("a", "b"): 1e-9, ("c", "a"): 5.0, ("b", "c"): 3.0, ("c", "b"): 1e-9}, 1
    )
    assert seconds[0, 1] == seconds[1, 0] == pytest.approx(usual)
    assert seconds[0, 2] == seconds[2, 0] == 5.0
    assert seconds[1, 2] == seconds[2, 1] == 3.0, "of two ends the slower one is believed"


def test_an_unknown_link_class_and_speed_take_the_defaults() -> None:
    parameters = MeshParameters(default_link_class="bluetooth", default_seconds_per_sample=0.5, basic_batch=10)
    devices = [device("a", ""), device("b", "", seconds_per_sample=0.2)]
    assert link_seconds(devices, parameters, {}, 1000)[0, 1] == pytest.approx(1000 * 8 / 2e6)
    assert link_seconds(devices, parameters, {}, 0)[0, 1] == pytest.approx(42_000 * 8 / 2e6)
    assert batch_seconds(devices, parameters).tolist() == [5.0, 2.0]


def test_trust_at_the_threshold_is_enough_in_spite_of_rounding() -> None:
    values = np.array([0.7 - 1e-13, 0.69, 1.0])
    matrix = Matrix(3, np.array([0, 0, 1]), np.array([1, 2, 2]), values, values, 0.8)
    assert trusted_pairs(matrix, 0.7).tolist() == [[False, True, False], [True, False, True], [False, True, False]]


@pytest.mark.parametrize(("devices", "cap"), [(1, 1), (2, 2), (8, 4), (9, 5), (256, 9)])
def test_the_recommended_cap_is_the_logarithm_and_one(devices: int, cap: int) -> None:
    assert degree_cap(MeshParameters(), devices) == cap
    assert degree_cap(MeshParameters(max_degree=3), devices) == 3
    assert degree_cap(MeshParameters(max_degree=None), devices) is None


# --- parameters -------------------------------------------------------------------------------------------------------


def test_checking_fills_every_default_in() -> None:
    filled = PLANNER.check("partial", {"topology": {"basic_batch": 8}, "pricing": {}})
    assert filled["topology"]["basic_batch"] == 8
    assert filled["topology"]["transfers"] == "shared"
    assert filled["privacy"] == {"epsilon": 1.0, "sensitivity": "clipped", "clip": 20.0}
    assert "privacy" not in PLANNER.check("none", {})


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("privacy", {"epsilon": 0}),
        ("privacy", {"epsilon": -1}),
        ("privacy", {"sensitivity": "guessed"}),
        ("topology", {"trust_threshold": 0}),
        ("topology", {"max_degree": 0}),
        ("topology", {"transfers": "magic"}),
        ("topology", {"speed": 3}),
    ],
)
def test_senseless_parameters_are_refused_by_name(section: str, values: dict[str, Any]) -> None:
    with pytest.raises(BadParameters, match=f"{section}.{next(iter(values))}"):
        PLANNER.check("partial", {section: values})


def test_a_choice_that_is_none_is_refused_with_all_there_are() -> None:
    plans = "betta, social, not 'tree'"
    with pytest.raises(BadParameters, match=rf"parameters\.topology\.plan: must be one of {plans}"):
        PLANNER.check("partial", {"topology": {"plan": "tree"}})
    with pytest.raises(BadParameters, match=r"topology\.max_degree: .*a whole number at least 1 or \"recommended\""):
        PLANNER.check("partial", {"topology": {"max_degree": 0}})
    with pytest.raises(BadParameters, match=r"topology\.relations: must be a list of words among .*not \['social', 'c"):
        PLANNER.check("partial", {"topology": {"relations": ["social", "cousin", "uncle"]}})


# --- plans ------------------------------------------------------------------------------------------------------------


def test_one_device_alone_and_two_that_trust_each_other_get_trivial_plans() -> None:
    alone = plan(inputs([], 1)).assignments[0]
    assert (alone.role, list(alone.neighbours), alone.self_weight, alone.noised) == (words.ROLE_PEER, [], 1.0, False)
    two = plan(inputs([(0, 1)], 2))
    assert pairs(two) == {("dev_0", "dev_1"), ("dev_1", "dev_0")}
    assert [(s.self_weight, s.neighbours[0].weight) for s in two.assignments] == [(0.5, 0.5)] * 2


def test_seats_are_the_planners_answer_in_the_protocols_words() -> None:
    given = inputs([(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)], 4)
    result, made = plan_mesh(given.network, given.rules), plan(given)
    assert pairs(made) == {(f"dev_{a}", f"dev_{b}") for i, j in result.pairs for a, b in ((i, j), (j, i))}
    assert [s.batch_size for s in made.assignments] == result.batch_sizes.tolist()
    assert made.round_seconds == result.figures.local_iterate
    for row, assignment in enumerate(made.assignments):
        assert assignment.self_weight + sum(n.weight for n in assignment.neighbours) == pytest.approx(1.0)
        assert assignment.noised == (row in result.dp_devices)
    assert {"step", "score", "trusted", "seconds", "between"} == set(details(made)["links"][0])
    assert set(details(made)["baselines"]) == {"social", "ring", "complete"}


def test_disconnected_social_graph_is_refused_with_parts_and_remedy() -> None:
    ids = ["ada", "bob", "eve", "zoe"]
    seconds = [[0, 1, 5, 9], [1, 0, 3, 9], [5, 3, 0, 9], [9, 9, 9, 0]]
    given = inputs([(0, 1)], 4, ids=ids, seconds=seconds)
    with pytest.raises(DisconnectedSocialGraph, match=r"3 parts, \{ada, bob\}, \{eve\}, \{zoe\}") as refused:
        plan(given)
    assert "trust between bob–eve, ada–zoe would connect them" in str(refused.value)
    assert "trust_threshold" in str(refused.value)


def test_strangers_are_bridged_when_task_says_so_and_both_ends_add_noise() -> None:
    seconds = [[0, 1, 5, 9], [1, 0, 3, 9], [5, 3, 0, 1], [9, 9, 1, 0]]
    made = plan(inputs([(0, 1), (2, 3)], 4, seconds=seconds, bridge=True, rules=MeshRules(epsilon=0.1, max_degree=2)))
    assert details(made)["bridges"] == [["dev_1", "dev_2"]]
    for assignment in made.assignments:
        assert assignment.noised == any(not neighbour.trusted for neighbour in assignment.neighbours)
    assert {s.device_id for s in made.assignments if s.noised} >= {"dev_1", "dev_2"}


def test_no_bridge_is_built_where_no_link_is_possible() -> None:
    seconds = np.array([[0.0, np.inf], [np.inf, 0.0]])
    with pytest.raises(DisconnectedSocialGraph, match="no possible link"):
        plan(inputs([], 2, seconds=seconds, bridge=True))


def test_missing_device_is_planned_around_even_if_it_connected_the_rest() -> None:
    first = plan(inputs([(0, 1), (1, 2)], 3, rules=MeshRules(epsilon=0.01)))
    assert not any(assignment.noised for assignment in first.assignments)
    rest = inputs([], 2, ids=["dev_0", "dev_2"])
    with pytest.raises(DisconnectedSocialGraph):
        plan(rest)
    second = plan(rest, previous=first)
    assert pairs(second) == {("dev_0", "dev_2"), ("dev_2", "dev_0")}
    assert all(assignment.noised for assignment in second.assignments)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 7), st.integers(0, 10_000))
def test_bridged_plans_connect_all_devices_and_noise_only_untrusted_ends(devices: int, seed: int) -> None:
    """DP = endpoints of untrust links (spec §7), whatever trust there is."""
    draw = np.random.default_rng(seed)
    trusted = [(i, j) for i in range(devices) for j in range(i + 1, devices) if draw.random() < 0.3]
    times = draw.integers(1, 9, (devices, devices)).astype(float)
    made = plan(inputs(trusted, devices, seconds=np.maximum(times, times.T), bridge=True))
    reached, frontier = {"dev_0"}, ["dev_0"]
    while frontier:
        here = frontier.pop()
        for a, b in pairs(made):
            if a == here and b not in reached:
                reached.add(b)
                frontier.append(b)
    assert len(reached) == devices
    known = {(f"dev_{a}", f"dev_{b}") for i, j in trusted for a, b in ((i, j), (j, i))}
    for assignment in made.assignments:
        strangers = [n.device_id for n in assignment.neighbours if (assignment.device_id, n.device_id) not in known]
        assert assignment.noised == bool(strangers)
        assert [n.device_id for n in assignment.neighbours if not n.trusted] == strangers


def test_beside_each_other_topology_stands_why_it_was_not_chosen() -> None:
    """Eight friends who all trust each other over equal links: every link is fast, and all of them exceed the cap."""
    all_pairs = [(i, j) for i in range(8) for j in range(i + 1, 8)]
    capped = plan(inputs(all_pairs, 8, rules=MeshRules(max_degree=3))).mesh_details
    assert capped.baselines["complete"].pseudo_training_time < capped.pseudo_training_time
    allowed = "a device would have 7 neighbours, and at most 3 are allowed (max_degree)"
    assert {name: item.why_not for name, item in capped.baselines.items()} == {
        "social": allowed,
        "complete": allowed,
        "ring": "it takes longer to train",
    }
    strict = plan(inputs([(0, 1), (1, 2), (2, 3)], 4, rules=MeshRules(epsilon=0.1)))
    assert {name: item["why_not"] for name, item in details(strict)["baselines"].items()} == {
        "social": "it is the plan",
        "ring": "2 devices would add noise, not 0; it takes longer to train",
        "complete": "4 devices would add noise, not 0; it takes longer to train",
    }


# --- every trusted link -----------------------------------------------------------------------------------------------

TREE = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


def test_the_social_plan_uses_every_trusted_link_and_says_so() -> None:
    made = plan(inputs(TREE, 6, plan="social"))
    assert [len(assignment.neighbours) for assignment in made.assignments] == [1, 2, 2, 2, 2, 1]
    assert made.mesh_details.baselines["ring"].why_not == "the task asked for the plan social"


def test_the_social_plan_is_bridged_like_any_plan() -> None:
    apart = [(0, 1), (1, 2), (3, 4), (4, 5)]
    with pytest.raises(DisconnectedSocialGraph, match="2 parts"):
        plan(inputs(apart, 6, plan="social"))
    made = plan(inputs(apart, 6, plan="social", bridge=True))
    strangers = {n.device_id for assignment in made.assignments for n in assignment.neighbours if not n.trusted}
    assert len(strangers) == 2
    assert {assignment.device_id for assignment in made.assignments if assignment.noised} == strangers


def test_an_unknown_relation_is_refused() -> None:
    with pytest.raises(BadParameters, match=r"topology\.relations"):
        PLANNER.check("partial", {"topology": {"relations": ["cousin"]}})


# --- keeping plans ----------------------------------------------------------------------------------------------------

RING = [(0, 1), (1, 2), (2, 3), (0, 3)]


def test_the_same_inputs_keep_the_very_plan() -> None:
    first = plan(inputs(RING, 4))
    assert plan(inputs(RING, 4), first) is first


def test_a_small_change_of_a_link_keeps_the_plan_and_a_large_one_does_not() -> None:
    times = np.ones((4, 4))
    first = plan(inputs([*RING, (0, 2), (1, 3)], 4, seconds=times))
    slow = times.copy()
    slow[0, 1] = slow[1, 0] = 1.02
    assert plan(inputs([*RING, (0, 2), (1, 3)], 4, seconds=slow), first) is first
    slow[0, 1] = slow[1, 0] = 100.0
    second = plan(inputs([*RING, (0, 2), (1, 3)], 4, seconds=slow), first)
    assert ("dev_0", "dev_1") in pairs(first)
    assert ("dev_0", "dev_1") not in pairs(second)


def holding(given: MeshInputs, *samples: int) -> MeshInputs:
    """The same inputs with other numbers of samples."""
    return dataclasses.replace(given, network=dataclasses.replace(given.network, samples=np.array(samples)))


def test_batches_follow_what_has_arrived_while_the_links_stay_as_they_are() -> None:
    """A first plan when devices hold 10 samples each; then two of them hold 500, then nothing worth telling comes."""
    given = inputs(RING, 4)
    first = plan(holding(given, 10, 10, 10, 10))
    second = plan(holding(given, 10, 500, 500, 10), first)
    assert [assignment.batch_size for assignment in first.assignments] == [10] * 4
    assert [assignment.batch_size for assignment in second.assignments] == [10, 32, 32, 10]
    assert pairs(second) == pairs(first)
    assert [(x.between, x.step) for x in second.mesh_details.links] == [
        (x.between, x.step) for x in first.mesh_details.links
    ]
    assert plan(holding(given, 11, 500, 500, 10), second) is second, "one more of ten is within replan_gain"


def test_batches_of_links_that_stand_follow_the_devices_speed() -> None:
    """Transfers of 1 s each on a ring: while a device of 8 s computes, one of 1 s gets through eight times as much."""
    given = inputs(RING, 4)
    first = plan(given)
    slow = dataclasses.replace(given.network, batch_seconds=np.array([8.0, 1.0, 1.0, 1.0]))
    second = plan(dataclasses.replace(given, network=slow), first)
    assert [assignment.batch_size for assignment in first.assignments] == [32] * 4
    assert pairs(second) == pairs(first)
    assert [assignment.batch_size for assignment in second.assignments] == [32, 256, 256, 256]


def test_link_between_noised_devices_reports_when_it_loses_trust() -> None:
    """0 and 1 add noise because of strangers; losing trust in each other changes no noise, and the plan says so."""
    bare = inputs([(0, 1)], 3, bridge=True, plan="betta", rules=MeshRules(max_degree=2))
    first = plan(bare)
    everyone = {assignment.device_id for assignment in first.assignments if assignment.noised}
    assert {"dev_0", "dev_1"} <= everyone, first
    lost = dataclasses.replace(bare, network=dataclasses.replace(bare.network, trusted=np.zeros((3, 3), dtype=bool)))
    second = plan(lost, first)
    assert {n.trusted for assignment in second.assignments for n in assignment.neighbours} == {False}


def test_a_slow_device_makes_no_other_compute_beyond_the_round() -> None:
    """A device that claims 1000 s for a basic batch: the others would take all their samples, in any plan."""
    given = inputs(RING, 4, rules=MeshRules(transfers="shared", most_seconds=3.0))
    claimed = dataclasses.replace(given.network, batch_seconds=np.array([1000.0, 1.0, 1.0, 0.5]))
    for name in ("betta", "social"):
        settings = dataclasses.replace(given.settings, plan=name)
        assignments = plan(dataclasses.replace(given, network=claimed, settings=settings)).assignments
        assert [assignment.batch_size for assignment in assignments] == [32, 96, 96, 192], name


def test_lost_trust_is_never_kept_even_if_a_new_plan_is_no_faster() -> None:
    first = plan(inputs(RING, 4, replan_gain=0.99))
    assert not any(assignment.noised for assignment in first.assignments)
    second = plan(inputs(RING[1:], 4, replan_gain=0.99), first)
    for assignment in second.assignments:
        for neighbour in assignment.neighbours:
            lost = {assignment.device_id, neighbour.device_id} == {"dev_0", "dev_1"}
            assert not lost or (assignment.noised and not neighbour.trusted)


def test_new_members_make_a_new_plan() -> None:
    first = plan(inputs(RING, 4))
    second = plan(inputs([*RING, (3, 4)], 5), first)
    assert {assignment.device_id for assignment in second.assignments} == {f"dev_{number}" for number in range(5)}


LADDER = [(i, i + 1) for i in range(7)] + [(i, i + 2) for i in range(6)]


def mended(first: pb.Plan, given: MeshInputs) -> tuple[set[tuple[str, str]], pb.Plan]:
    """Links of the first plan that a second still has, and the second."""
    second = plan(given, first)
    return pairs(first) & pairs(second), second


def test_who_comes_or_goes_leaves_the_links_of_the_others_as_they_are() -> None:
    """As long as a whole new plan would gain less than `replan_gain`."""
    first = plan(inputs(LADDER, 8, replan_gain=0.9))
    ids = [f"dev_{number}" for number in range(7)]
    held = {pair for pair in pairs(first) if "dev_7" not in pair}
    retained, second = mended(first, inputs([pair for pair in LADDER if 7 not in pair], 7, ids=ids, replan_gain=0.9))
    assert retained == held
    retained, third = mended(second, inputs(LADDER, 8, replan_gain=0.9))
    assert retained == pairs(second)
    assert {assignment.device_id for assignment in third.assignments if assignment.neighbours} == {
        f"dev_{number}" for number in range(8)
    }


def test_lost_trust_takes_its_own_link_away_and_no_other() -> None:
    first = plan(inputs(LADDER, 8, replan_gain=0.9))
    i, j = next((i, j) for i, j in LADDER if (f"dev_{i}", f"dev_{j}") in pairs(first) and i > 0 and j < 7)
    lost = {(f"dev_{i}", f"dev_{j}"), (f"dev_{j}", f"dev_{i}")}
    retained, second = mended(first, inputs([pair for pair in LADDER if pair != (i, j)], 8, replan_gain=0.9))
    assert retained == pairs(first) - lost
    assert not lost & pairs(second)
    assert not any(assignment.noised for assignment in second.assignments)


def test_a_plan_is_not_mended_where_a_new_one_is_much_better() -> None:
    times = np.ones((8, 8))
    first = plan(inputs(LADDER, 8, seconds=times))
    slow = times.copy()
    for i, j in ((0, 1), (1, 2), (2, 3), (3, 4)):
        slow[i, j] = slow[j, i] = 1000.0
    all_pairs = [(i, j) for i in range(8) for j in range(i + 1, 8)]
    fresh = plan(inputs(all_pairs, 8, seconds=slow))
    assert pairs(plan(inputs(all_pairs, 8, seconds=slow), first)) == pairs(fresh)


def test_a_plan_with_bridges_says_which_links_are_really_trusted() -> None:
    given = inputs([(0, 1)], 3)
    made = plan_with_bridges(given, [(1, 2)])
    assert {(link.first, link.second): link.trusted for link in made.links}[0, 1]
    assert made.dp_devices == tuple(sorted({d for x in made.links if not x.trusted for d in (x.first, x.second)}))

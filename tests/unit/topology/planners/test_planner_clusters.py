"""The clusters planner: from a trust graph to assignments, and when it keeps them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.privacy.gaussian import exact_multiplier, paper_multiplier
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from services.gateway.wire.convert import to_json
from services.kit.rpc.parameters import BadParameters, to_struct
from services.kit.rpc.trust_matrix import Matrix
from services.topology.domain.coalition import Game, evaluate, partition_of
from services.topology.domain.quality import Measurement, QualityModel
from services.topology.domain.stability import blocking_move
from services.topology.planners.base import alone_of, strangers_of
from services.topology.planners.clusters import ClusterInputs, ClustersPlanner
from services.trust.domain.graph import TrustGraph
from services.trust.domain.matrices import entries_among

PLANNER = ClustersPlanner()


def request(
    devices: str = "abcd", parameters: dict[str, Any] | None = None, privacy: str = "trust", **changes: Any
) -> pb.MakePlanRequest:
    """A request for devices named by single letters."""
    return pb.MakePlanRequest(
        task_id="tsk_1",
        topology="clusters",
        privacy=privacy,
        parameters=to_struct(parameters or {}),
        participants=[pb.Participant(device_id=name, samples=10) for name in devices],
        round=1,
        keep_if_stable=True,
        **changes,
    )


def graph(devices: str, ties: dict[str, float], outside: str = "") -> Matrix:
    """What the registry tells of devices with direct trust by pairs of letters; those outside take no part."""
    world = sorted(devices + outside)
    first, second = [world.index(pair[0]) for pair in ties], [world.index(pair[1]) for pair in ties]
    whole = TrustGraph.from_ties(len(world), first, second, list(ties.values()))
    return matrix_of(whole, [world.index(name) for name in sorted(devices)])


def matrix_of(whole: TrustGraph, devices: Sequence[int]) -> Matrix:
    result = entries_among(whole, np.array(devices, dtype=np.int64), 0.8)
    return Matrix(len(devices), result.rows, result.columns, result.direct, result.trust, 0.8)


def planned(
    asked: pb.MakePlanRequest,
    trust: Matrix,
    previous: pb.Plan | None,
    start: Sequence[Sequence[str]] = (),
    measured: Sequence[Measurement] = (),
) -> pb.Plan:
    return PLANNER.plan(asked, ClusterInputs(trust, start, measured), previous)


def by_id(plan: pb.Plan) -> dict[str, pb.Assignment]:
    return {assignment.device_id: assignment for assignment in plan.assignments}


def groups(plan: pb.Plan) -> set[frozenset[str]]:
    result: dict[str, set[str]] = {}
    for assignment in plan.assignments:
        result.setdefault(assignment.head_device_id or assignment.device_id, set()).add(assignment.device_id)
    return {frozenset(group) for group in result.values()}


@pytest.mark.parametrize("privacy", ["trust", "none"])
def test_a_device_is_never_under_a_head_its_owner_does_not_know(privacy: str) -> None:
    all_pairs = {"ab": 0.9, "ac": 0.9, "bc": 0.9, "ad": 0.8, "bd": 0.8, "cd": 0.8}
    whole = graph("abcd", all_pairs)
    assert groups(planned(request("abcd", privacy=privacy), whole, None)) == {frozenset("abcd")}
    asked = request("abcd", privacy=privacy)
    for other in "abc":
        asked.participants[3].strangers.append(other)
    assert strangers_of(asked.participants) == [(3, 0), (3, 1), (3, 2)]
    plan = planned(asked, whole.without(strangers_of(asked.participants)), None)
    assert groups(plan) == {frozenset("abc"), frozenset("d")}
    assert by_id(plan)["d"].noise_multiplier == (0.6 if privacy == "trust" else 0.0)
    asked.participants[3].ClearField("strangers")
    asked.participants[3].unclustered = True
    single = planned(asked, whole.without([], alone_of(asked.participants)), None)
    assert groups(single) == {frozenset("abc"), frozenset("d")}


@given(st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(lambda pair: pair[0] != pair[1]), max_size=6))
def test_no_trust_is_left_between_strangers_and_all_elsewhere(apart: set[tuple[int, int]]) -> None:
    ties = {"".join(pair): 0.9 for pair in combinations("abcde", 2)}
    whole = graph("abcde", ties).dense()
    retained = graph("abcde", ties).without(apart).dense()
    for i, j in np.ndindex(5, 5):
        assert retained[i, j] == (0.0 if (i, j) in apart or (j, i) in apart else whole[i, j])


def test_two_friends_pair_up_and_stranger_stays_alone_with_largest_noise() -> None:
    plan = planned(request("abc"), graph("abc", {"ab": 0.9}), None)
    assignments = by_id(plan)
    assert [(s.role, s.group, s.head_device_id) for s in plan.assignments] == [
        (words.ROLE_HEAD, 0, "a"),
        (words.ROLE_MEMBER, 0, "a"),
        (words.ROLE_SOLO, -1, ""),
    ]
    assert (
        assignments["a"].noise_multiplier,
        assignments["b"].noise_multiplier,
        assignments["c"].noise_multiplier,
    ) == (0.0, 0.0, 0.6)
    # Worked values of the specification: a clique is worth 49.1508… per head, a device alone 32.3686….
    assert assignments["a"].payoff == pytest.approx(49.15085508930)
    assert assignments["c"].payoff == pytest.approx(32.36864570571)
    assert "trusts the head 0.90, sends it raw; gets 49.15, 16.78 more than alone" in assignments["b"].because
    assert "no other cluster has anybody it has dealt with" in assignments["c"].because


def test_below_the_threshold_noise_follows_trust_exactly_by_default() -> None:
    ties = graph("ab", {"ab": 0.5})
    epsilon = 100 * 0.5 / 1.5
    exact = planned(request("ab"), ties, None)
    assert by_id(exact)["b"].noise_multiplier == pytest.approx(exact_multiplier(epsilon, 1e-6), rel=1e-8)
    paper = planned(request("ab", {"privacy": {"calibration": "paper"}}), ties, None)
    assert by_id(paper)["b"].noise_multiplier == pytest.approx(paper_multiplier(epsilon, 1e-6), rel=1e-12)
    # θ1 and θ2 of eq (11) are the task's: ε = 60 · 0.5 / (0.5 + 2) = 12.
    parameters = {"topology": {"budget_scale": 60.0, "budget_shift": 2.0}}
    asked = planned(request("ab", parameters), ties, None)
    assert by_id(asked)["b"].noise_multiplier == pytest.approx(exact_multiplier(12.0, 1e-6), rel=1e-8)
    assert "sends it with noise" in by_id(exact)["b"].because


def test_weights_are_qualities_and_plan_carries_what_settling_needs() -> None:
    plan = planned(request("abc"), graph("abc", {"ab": 0.5}), None)
    model = QualityModel(calibration="exact")
    for assignment in plan.assignments:
        assert assignment.weight == pytest.approx(float(model.quality(assignment.noise_multiplier, 1.0)), rel=1e-9)
    result = to_json(plan)["details"]  # as REST shows them
    assert result["stable"] is True
    assert result["blocking"] is None
    assert result["transfers"] == [
        {
            "iteration": 1,
            "device": "a",
            "from": [],
            "to": ["b"],
            "gain": pytest.approx(by_id(plan)["a"].payoff - result["solo_payoffs"]["a"]),
        }
    ]
    assert result["game_parameters"] == {"price": 0.52, "member_cost": 1.2, "head_reward": 0.0}
    assert result["solo_payoffs"]["c"] == pytest.approx(0.52 * by_id(plan)["c"].weight)
    assert {assignment.device_id: assignment.solo_payoff for assignment in plan.assignments} == result["solo_payoffs"]
    assert (plan.game_parameters.price, plan.game_parameters.member_cost, plan.game_parameters.head_reward) == (
        0.52,
        1.2,
        0.0,
    )


def test_declared_non_iid_degrees_count_up_to_the_level_all_others_get() -> None:
    asked = request("abc")
    asked.participants[1].non_iid = 0.25
    asked.participants[2].non_iid = 1e6
    plan = planned(asked, graph("abc", {}), None)
    model = QualityModel()
    assert [s.weight for s in plan.assignments] == pytest.approx(
        [float(model.quality(0.6, g)) for g in (1.0, 0.25, 1.0)]
    )


@pytest.mark.parametrize("fitted", [False, True])
def test_unclustered_device_weighs_by_its_degree_and_the_games_constants(fitted: bool) -> None:
    """a and b are friends with data of unlike degree: each would weigh q(σ_max, its own γ) if the other stayed away."""
    truth = QualityModel(calibration="exact", loss_fit=(0.02, 0.9, 0.01, 7.0, 0.2), quality_slope=30.0)
    runs = [
        Measurement(noise, gamma, float(truth.loss(noise, gamma)), float(truth.quality(noise, gamma)))
        for noise in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
        for gamma in (0.1, 1.0)
    ]
    constants = {"quality": "fitted"} if fitted else {"loss_fit": truth.loss_fit, "quality_slope": 30.0}
    asked = request("abc", {"topology": constants})
    asked.participants[0].non_iid = 0.25
    assignments = by_id(planned(asked, graph("abc", {"ab": 0.9}), None, measured=runs))
    for name, gamma in (("a", 0.25), ("b", 1.0), ("c", 1.0)):
        assert assignments[name].solo_weight == pytest.approx(
            float(truth.quality(0.6, gamma)), abs=0.05 if fitted else 1e-9
        )
    assert assignments["a"].solo_weight < assignments["b"].solo_weight - 1.0
    assert assignments["c"].weight == pytest.approx(assignments["c"].solo_weight, rel=1e-9), "c is alone"
    other = by_id(planned(request("abc", privacy="none"), graph("abc", {"ab": 0.9}), None))
    assert {assignment.solo_weight for assignment in other.values()} == {
        assignment.weight for assignment in other.values()
    }


def test_a_new_fit_and_another_degree_make_new_seats_in_the_same_clusters() -> None:
    """Noise stays what it was, so that nothing else would tell that qualities have changed."""
    truth = QualityModel(calibration="exact", loss_fit=(0.02, 0.0, 0.01, 7.0, 0.2), quality_slope=30.0)
    runs = [
        Measurement(noise, 1.0, float(truth.loss(noise, 1.0)), float(truth.quality(noise, 1.0)))
        for noise in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    ]
    asked, trust = request("abc", {"topology": {"quality": "fitted"}}), graph("abc", {"ab": 0.9})
    first = planned(asked, trust, None, measured=runs[:4])
    assert list(planned(asked, trust, first, measured=runs[:4]).assignments) == list(first.assignments)
    later = planned(asked, trust, first, measured=runs)
    assert (groups(later), later.cluster_details.retained) == (groups(first), True)
    assert later.cluster_details.fit.fitted
    assert by_id(later)["a"].weight == pytest.approx(float(truth.quality(0.0, 1.0)), abs=0.1)
    asked.participants[2].non_iid = 0.01
    assert by_id(planned(asked, trust, later, measured=runs))["c"].weight <= by_id(later)["c"].weight
    same = request("abc")
    before = planned(same, trust, None)
    same.participants[2].non_iid = 0.01
    assert by_id(planned(same, trust, before))["c"].weight < by_id(before)["c"].weight


def test_small_changes_of_trust_keep_the_very_seats() -> None:
    first = planned(request("abc"), graph("abc", {"ab": 0.50, "bc": 0.9}), None)
    again = planned(request("abc"), graph("abc", {"ab": 0.495, "bc": 0.91}), first)
    assert list(again.assignments) == list(first.assignments)


def test_noise_that_changes_enough_makes_new_seats_in_the_same_clusters() -> None:
    first = planned(request("ab"), graph("ab", {"ab": 0.50}), None)
    again = planned(request("ab"), graph("ab", {"ab": 0.30}), first)
    assert groups(again) == groups(first)
    assert by_id(again)["b"].noise_multiplier > by_id(first)["b"].noise_multiplier + 0.02
    assert again.cluster_details.retained


def test_trust_that_falls_below_threshold_is_never_called_small_change() -> None:
    first = planned(request("ab", {"topology": {"noise_tolerance": 10}}), graph("ab", {"ab": 0.70}), None)
    again = planned(request("ab", {"topology": {"noise_tolerance": 10}}), graph("ab", {"ab": 0.69}), first)
    assert by_id(first)["b"].noise_multiplier == 0.0
    assert by_id(again)["b"].noise_multiplier > 0.0


def test_a_stable_plan_is_kept_where_a_fresh_one_would_pair_otherwise() -> None:
    """All three pairings of a clique of four are stable; yesterday's stays."""
    ties = {a + b: 0.9 for a, b in combinations("abcd", 2)}
    assignments = [
        pb.Assignment(device_id="a", role=words.ROLE_HEAD, head_device_id="a", group=0),
        pb.Assignment(device_id="b", role=words.ROLE_HEAD, head_device_id="b", group=1),
        pb.Assignment(device_id="c", role=words.ROLE_MEMBER, head_device_id="b", group=1),
        pb.Assignment(device_id="d", role=words.ROLE_MEMBER, head_device_id="a", group=0),
    ]
    again = planned(request(), graph("abcd", ties), pb.Plan(assignments=assignments))
    assert groups(again) == {frozenset("ad"), frozenset("bc")}
    asked = request()
    asked.keep_if_stable = False
    assert groups(planned(asked, graph("abcd", ties), pb.Plan(assignments=assignments))) != groups(again)


def test_cluster_without_head_elects_another_and_the_rest_keep_places() -> None:
    ties = {"ab": 0.9, "ac": 0.9, "bc": 0.8, "de": 0.9}
    whole = planned(request("abcde"), graph("abcde", ties), None)
    head = by_id(whole)["b"].head_device_id
    left = "".join(sorted(set("abc") - {head}))
    between = planned(request(left), graph(left, {p: e for p, e in ties.items() if set(p) <= set(left)}), whole)
    assert groups(between) == {frozenset(left)}
    assert by_id(between)[left[0]].role == words.ROLE_HEAD
    after = planned(request("abcde"), graph("abcde", ties), between)
    assert frozenset("de") in groups(after)
    assert after.cluster_details.transfers_made == 1  # the head returns; no other device moves


def test_one_to_be_alone_leaves_its_cluster_to_another_head() -> None:
    """All trust each other; the former head must be unclustered, and the rest stay together."""
    ties = graph("abcd", {a + b: 0.9 for a, b in combinations("abcd", 2)})
    before = planned(request(), ties, None)
    head = by_id(before)["a"].head_device_id
    apart = ties.without((), ["abcd".index(head)])
    after = planned(request(), apart, before)
    assert by_id(after)[head].role == words.ROLE_SOLO
    assert by_id(after)[head].noise_multiplier == 0.6
    assert groups(after) == {frozenset(head), frozenset(set("abcd") - {head})}
    assert not any(
        assignment.head_device_id == head for assignment in after.assignments if assignment.device_id != head
    )
    assert planned(request(), apart, after).assignments == after.assignments


def test_privacy_none_and_uniform_form_same_clusters_with_tasks_noise() -> None:
    ties = graph("abc", {"ab": 0.5})
    trusting = planned(request("abc"), ties, None)
    bare = planned(request("abc", privacy="none"), ties, None)
    uniform = planned(request("abc", {"privacy": {"noise_multiplier": 0.3}}, privacy="uniform"), ties, None)
    assert groups(trusting) == groups(bare) == groups(uniform)
    assert {s.noise_multiplier for s in bare.assignments} == {0.0}
    assert {s.noise_multiplier for s in uniform.assignments} == {0.3}


def test_parameters_are_completed() -> None:
    filled = PLANNER.check("trust", {"topology": {"method": "rounds"}, "pricing": {"credits_per_point": 1}})
    assert filled["topology"]["method"] == "rounds"
    assert "direct_weight" not in filled["topology"]  # the registry's own
    assert filled["privacy"] == {"trust_threshold": 0.7, "noise_max": 0.6, "delta": 1e-6, "calibration": "exact"}
    assert filled["pricing"] == {"credits_per_point": 1}
    json.dumps(filled)


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("topology", {"method": "auction"}, "topology.method"),
        ("topology", {"head_reward": -1}, "topology.head_reward"),
        ("topology", {"budget_scale": 0}, "topology.budget_scale"),
        ("topology", {"budget_shift": -1}, "topology.budget_shift"),
        ("topology", {"direct_weight": 1.1}, "topology.direct_weight"),
        ("topology", {"loss_fit": [1, 2, 3]}, "topology.loss_fit"),
        ("topology", {"loss_fit": [1, 2, 0, 4, 5]}, "loss_fit"),
        ("topology", {"quality_offset": 1.0}, "quality at noise_max"),
        ("privacy", {"trust_threshold": 2}, "privacy.trust_threshold"),
        ("privacy", {"noise_max": 0}, "privacy.noise_max"),
        ("privacy", {"delta": 1}, "privacy.delta"),
        ("privacy", {"calibration": "none"}, "privacy.calibration"),
        ("privacy", {"epsilon": 1}, "privacy.epsilon"),
    ],
)
def test_bad_parameters_are_refused_by_name(section: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadParameters, match=message):
        PLANNER.check("trust", {section: values})


def test_trust_through_a_friend_who_takes_no_part_counts() -> None:
    """a–b–c are friends; a and c enrol. The registry says α(a, c) = 0.2 · 0.9 · 0.8, and so does the plan."""
    ties = {"ab": 0.9, "bc": 0.8}
    plan = planned(request("ac"), graph("ac", ties, outside="b"), None)
    assert groups(plan) == {frozenset("ac")}
    alpha = 0.2 * 0.9 * 0.8
    expected = exact_multiplier(100 * alpha / (1 + alpha), 1e-6)
    assert by_id(plan)["c"].noise_multiplier == pytest.approx(expected, rel=1e-8)
    assert "trusts the head 0.14" in by_id(plan)["c"].because
    strangers = planned(request("ac"), graph("ac", {}, outside="b"), None)
    assert groups(strangers) == {frozenset("a"), frozenset("c")}


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 7), st.integers(0, 10_000), st.sampled_from(["rounds", "sweep"]))
def test_every_device_has_one_seat_and_stability_is_what_the_checker_says(size: int, seed: int, method: str) -> None:
    """Seats cover every device once, clusters are feasible, Σψ = V(C), and details repeat the checker's word."""
    draw = np.random.default_rng(seed)
    names = "abcdefg"[:size]
    ties = {a + b: float(draw.uniform(0.05, 1)) for a, b in combinations(names, 2) if draw.random() < 0.6}
    social = graph(names, ties)
    plan = planned(request(names, {"topology": {"method": method}}), social, None)
    assert [s.device_id for s in plan.assignments] == list(names)
    ends = [[names.index(name) for name in pair] for pair in ties]
    whole = TrustGraph.from_ties(size, [a for a, _ in ends], [b for _, b in ends], list(ties.values()))
    game = Game(whole, 1.0, quality=QualityModel(calibration="exact"))
    partition = partition_of([[names.index(n) for n in group] for group in groups(plan)], size)
    assert plan.cluster_details.stable == (blocking_move(game, partition) is None)
    for members in partition:
        coalition = evaluate(game, members)
        assert coalition.feasible
        assert sum(by_id(plan)[names[m]].payoff for m in members) == pytest.approx(coalition.value)
        for member, noise in zip(members, coalition.noise, strict=True):
            assert by_id(plan)[names[member]].noise_multiplier == pytest.approx(float(noise))


def test_only_the_first_plan_starts_from_another_tasks_clusters() -> None:
    """Two pairs of friends: started as pairs no device has to move, and `gone` does not matter."""
    trust = graph("abcd", {"ab": 0.9, "cd": 0.9})
    fresh = planned(request("abcd"), trust, None)
    begun = planned(request("abcd"), trust, None, start=[["a", "b"], ["c", "d", "gone"]])
    assert groups(begun) == groups(fresh) == {frozenset("ab"), frozenset("cd")}
    assert fresh.cluster_details.transfers_made == 2
    assert begun.cluster_details.transfers_made == 0, "it was stable where it began"
    assert not begun.cluster_details.retained, "only a plan of the same task counts as retained"
    moved = planned(request("abcd"), trust, fresh, start=[["a", "c"], ["b", "d"]])
    assert list(moved.assignments) == list(fresh.assignments)


def test_a_beginning_that_trust_forbids_is_left() -> None:
    """A start that pairs strangers does not let a member send raw updates to one."""
    plan = planned(request("abc"), graph("abc", {"ab": 0.9}), None, start=[["a", "c"], ["b"]])
    assert groups(plan) == {frozenset("ab"), frozenset("c")}
    assert by_id(plan)["c"].noise_multiplier == 0.6


def test_a_fitted_quality_model_is_used_and_its_error_is_reported() -> None:
    """Runs made with other constants than the paper's: assignments weigh by those, and five runs are the fewest."""
    truth = QualityModel(calibration="exact", loss_fit=(0.02, 0.0, 0.01, 7.0, 0.2), quality_slope=30.0)
    runs = [
        Measurement(noise, 1.0, float(truth.loss(noise, 1.0)), float(truth.quality(noise, 1.0)))
        for noise in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    ]
    trust = graph("abc", {"ab": 0.9})
    asked = request("abc", {"topology": {"quality": "fitted"}})
    plan = planned(asked, trust, None, measured=runs)
    fit = plan.cluster_details.fit
    assert (fit.fitted, fit.runs, fit.why) == (True, 7, "")
    assert fit.loss_rmse < 1e-3
    assert by_id(plan)["a"].weight == pytest.approx(float(truth.quality(0.0, 1.0)), abs=0.1)
    assert by_id(plan)["c"].weight == pytest.approx(float(truth.quality(0.6, 1.0)), abs=0.1)
    few = planned(asked, trust, None, measured=runs[:4])
    assert not few.cluster_details.fit.fitted
    assert few.cluster_details.fit.why == "a refit needs at least five runs, not 4; the constants given are used"
    given = planned(request("abc"), trust, None, measured=runs)
    assert not given.cluster_details.HasField("fit")
    assert list(few.assignments) == list(given.assignments)

"""The planner: fast equals reference on random instances, and every plan keeps BeTTa's invariants."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie_lab.betta_baselines import expander_links
from services.topology.domain import betta_fast
from services.topology.domain.betta import MeshPlan, batch_sizes, evaluate_links
from services.topology.domain.betta_fast import MOST_UNCOMPILED, plan_mesh, plan_mesh_with_drift, plan_soonest
from services.topology.domain.betta_network import (
    BadMeshInput,
    DisconnectedSocialGraph,
    MeshNetwork,
    MeshRules,
    Transfers,
    UnknownMeshDevice,
    pairs_to_adjacency,
)
from services.topology.domain.betta_reference import plan_mesh_reference
from services.topology.domain.mixing import NotConnected
from services.topology.domain.plain_links import complete_links, ring_links, social_links

TIMES = ("radio", "few", "distinct", "impossible")


def random_network(seed: int, count: int, times: str, density: float) -> MeshNetwork:
    rng = np.random.default_rng(seed)
    order = rng.permutation(count)
    links = {(int(order[i]), int(order[rng.integers(0, i)])) for i in range(1, count)}
    links |= {(i, j) for i in range(count) for j in range(i + 1, count) if rng.random() < density}
    draw = rng.random((count, count))
    draw = np.maximum(draw, draw.T)
    if times == "radio":
        place = rng.random((count, 2)) * 300
        far = np.hypot(*(place[:, None] - place[None]).transpose(2, 0, 1)) >= 100
        return MeshNetwork.build(
            count, links, np.where(far, 8.96, 0.004654), rng.choice([77.0, 32.0, 32.0, 14.0], count)
        )
    if times == "few":
        return MeshNetwork.build(count, links, np.ceil(draw * 4), rng.integers(1, 4, count))
    seconds = draw * 50
    if times == "impossible":
        trusted = pairs_to_adjacency(count, links)
        seconds = np.where((draw > 0.8) & ~trusted, np.inf, seconds)
    return MeshNetwork.build(count, links, seconds, rng.random(count) * 50 + 0.1)


def random_rules(seed: int, count: int) -> MeshRules:
    rng = np.random.default_rng(seed)
    cap = None if rng.random() < 0.5 else int(rng.integers(1, count + 1))
    transfers: Transfers = "shared" if rng.random() < 0.5 else "parallel"
    return MeshRules(float(rng.choice([0.3, 1.0, 4.0, 10.0])), 32, cap, transfers)


def require_equal(network: MeshNetwork, rules: MeshRules) -> None:
    slow = plan_mesh_reference(network, rules)
    fast, drift = plan_mesh_with_drift(network, rules)
    assert fast.pairs == slow.pairs
    assert (fast.dp_budget, fast.dp_devices) == (slow.dp_budget, slow.dp_devices)
    assert fast.batch_sizes.tolist() == slow.batch_sizes.tolist()
    assert fast.figures.pseudo_training_time == pytest.approx(slow.figures.pseudo_training_time, rel=1e-12)
    assert drift <= 1e-11 * network.devices
    if all(link.step != "complete" for link in fast.links):
        ours = [(link.first, link.second, link.step) for link in fast.links]
        assert ours == [(link.first, link.second, link.step) for link in slow.links]
        assert [link.score for link in fast.links] == pytest.approx([link.score for link in slow.links], rel=1e-8)


@given(seed=st.integers(0, 2**32), count=st.integers(2, 11), times=st.sampled_from(TIMES), density=st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_fast_equals_reference(seed: int, count: int, times: str, density: float) -> None:
    """Identical links, DP set, n and batches, capped or not, parallel or shared."""
    require_equal(random_network(seed, count, times, density), random_rules(seed, count))


@pytest.mark.parametrize("seed", range(4))
def test_fast_equals_reference_at_20(seed: int) -> None:
    require_equal(random_network(seed, 20, TIMES[seed], 0.15), random_rules(seed + 9, 20))


@pytest.mark.slow
@pytest.mark.parametrize("transfers", ["parallel", "shared"])
@pytest.mark.parametrize("cap", [None, 7])
@pytest.mark.parametrize(("count", "times", "epsilon"), [(48, "distinct", 4.0), (64, "radio", 1.0), (56, "few", 10.0)])
def test_fast_equals_reference_at_48_to_64(
    count: int, times: str, epsilon: float, cap: int | None, transfers: Transfers
) -> None:
    require_equal(random_network(count, count, times, 0.05), MeshRules(epsilon, 32, cap, transfers))


def test_small_networks_need_no_compiled_code_and_larger_ones_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def spy(network: MeshNetwork, rules: MeshRules) -> MeshPlan:
        sizes.append(network.devices)
        return plan_mesh_reference(network, rules)

    monkeypatch.setattr(betta_fast, "plan_mesh", spy)
    for count in (2, MOST_UNCOMPILED, MOST_UNCOMPILED + 1):
        network = random_network(count, count, "radio", 0.2)
        assert plan_soonest(network, MeshRules()).pairs == plan_mesh_reference(network, MeshRules()).pairs
    assert sizes == [MOST_UNCOMPILED + 1]


@given(seed=st.integers(0, 2**32), count=st.integers(2, 10), times=st.sampled_from(TIMES))
@settings(max_examples=60, deadline=None)
def test_every_plan_keeps_the_invariants(seed: int, count: int, times: str) -> None:
    """DP = endpoints of untrusted links; |DP| ≤ n; the first V−1 links are CAS's tree; MEP prolongs nothing."""
    network, rules = random_network(seed, count, times, 0.3), random_rules(seed, count)
    plan = plan_mesh(network, rules)
    ends = {end for link in plan.links if not link.trusted for end in (link.first, link.second)}
    assert plan.dp_devices == tuple(sorted(ends))
    assert len(plan.dp_devices) <= plan.dp_budget
    if plan.links[0].step != "complete":
        assert all(link.step == "CAS" for link in plan.links[: count - 1])
    assert (plan.batch_sizes >= rules.basic_batch).all()
    adjacency = pairs_to_adjacency(count, plan.pairs)
    compute = network.batch_seconds / rules.basic_batch * plan.batch_sizes
    if rules.transfers == "shared":
        finish = compute + np.where(adjacency, network.link_seconds, 0).sum(axis=1)
    else:
        finish = (network.link_seconds + np.maximum.outer(compute, compute))[adjacency]
    assert finish.max() <= plan.figures.local_iterate * (1 + 1e-9)
    social = evaluate_links(network, rules, social_links(network))
    if rules.max_degree is None:
        assert plan.figures.pseudo_training_time <= social.figures.pseudo_training_time * (1 + 1e-8)


@given(seed=st.integers(0, 2**32), count=st.integers(3, 9))
@settings(max_examples=30, deadline=None)
def test_relabelling_devices_relabels_the_plan_when_times_are_distinct(seed: int, count: int) -> None:
    network = random_network(seed, count, "distinct", 0.4)
    order = np.random.default_rng(seed).permutation(count)
    moved = replace(
        network,
        trusted=network.trusted[np.ix_(order, order)],
        link_seconds=network.link_seconds[np.ix_(order, order)],
        batch_seconds=network.batch_seconds[order],
    )
    plan, other = plan_mesh(network, MeshRules(4.0)), plan_mesh(moved, MeshRules(4.0))
    renamed = {tuple(sorted((int(order[i]), int(order[j])))) for i, j in other.pairs}
    assert other.figures.pseudo_training_time == pytest.approx(plan.figures.pseudo_training_time, rel=1e-9)
    assert renamed == set(plan.pairs)


def test_chosen_snapshot_is_best_of_all_topologies_tried_on_three_devices() -> None:
    """Brute force: the path 0–1–2 of trust has one other topology, the triangle with 0 and 2 noisy."""
    seconds = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    network = MeshNetwork.build(3, [(0, 1), (1, 2)], seconds, [1, 1, 1])
    path = evaluate_links(network, MeshRules(), [(0, 1), (1, 2)]).figures.pseudo_training_time
    for epsilon, best in ((0.1, 2), (10.0, 3)):
        triangle = evaluate_links(network, MeshRules(epsilon), [(0, 1), (0, 2), (1, 2)]).figures.pseudo_training_time
        plan = plan_mesh(network, MeshRules(epsilon))
        assert len(plan.pairs) == best
        assert plan.figures.pseudo_training_time == pytest.approx(min(path, triangle))


def test_one_and_two_devices_have_trivial_plans() -> None:
    one = plan_mesh(MeshNetwork.build(1, [], [[0]], [5.0]), MeshRules())
    assert (one.pairs, one.dp_devices, one.batch_sizes.tolist()) == ((), (), [32])
    assert (one.figures.hitting_time, one.figures.spectral_gap) == (0.0, 1.0)
    assert (one.figures.local_iterate, one.figures.pseudo_training_time) == (5.0, 0.0)
    two = plan_mesh(MeshNetwork.build(2, [(1, 0)], [[0, 3], [3, 0]], [5.0, 1.0]), MeshRules())
    assert (two.pairs, two.figures.local_iterate) == (((0, 1),), 8.0)
    assert two.figures.hitting_time == pytest.approx(2.0)
    assert two.figures.pseudo_training_time == pytest.approx(16.0)


def test_tight_batches_expand_the_faster_end_and_samples_cap_them() -> None:
    network = MeshNetwork.build(2, [(0, 1)], [[0, 3], [3, 0]], [5.0, 1.0], samples=[20, 100])
    adjacency = pairs_to_adjacency(2, [(0, 1)])
    assert batch_sizes(replace(network, samples=None), MeshRules(), adjacency, tight=True).tolist() == [32, 160]
    assert batch_sizes(network, MeshRules(), adjacency, tight=True).tolist() == [20, 100]
    assert batch_sizes(network, MeshRules(), adjacency).tolist() == [20, 32]


def test_a_disconnected_social_graph_names_its_parts_and_a_remedy() -> None:
    seconds = np.full((4, 4), 9.0)
    seconds[1, 2] = seconds[2, 1] = 2.0
    for planner in (plan_mesh, plan_mesh_reference):
        with pytest.raises(DisconnectedSocialGraph, match=r"\{0, 1\} and \{2, 3\}; trust along 1–2"):
            planner(MeshNetwork.build(4, [(0, 1), (2, 3)], seconds, [1] * 4), MeshRules())
    with pytest.raises(DisconnectedSocialGraph, match="3 parts"):
        plan_mesh(MeshNetwork.build(3, [], np.ones((3, 3)), [1] * 3), MeshRules())
    blocked = np.array([[0, np.inf], [np.inf, 0]])
    with pytest.raises(DisconnectedSocialGraph, match="infinite link_seconds do not count"):
        plan_mesh(MeshNetwork.build(2, [(0, 1)], blocked, [1, 1]), MeshRules())


@pytest.mark.parametrize(
    ("seconds", "batches", "words"),
    [
        ([[0, -1], [-1, 0]], [1, 1], "negative"),
        ([[0, np.nan], [1, 0]], [1, 1], "missing"),
        ([[0, 1], [2, 0]], [1, 1], "asymmetric"),
        ([[0, 1], [1]], [1, 1], "ragged"),
        ([[0, 1]], [1, 1], "shape"),
        ([[0, 1], [1, 0]], [1], "batch_seconds"),
        ([[0, 1], [1, 0]], [1, 0], "above 0"),
        ([[0, 1], [1, 0]], [1, np.inf], "finite"),
    ],
)
def test_bad_times_are_refused_with_the_value(seconds: list[list[float]], batches: list[float], words: str) -> None:
    with pytest.raises(BadMeshInput, match=words):
        MeshNetwork.build(2, [(0, 1)], seconds, batches)


def test_bad_rules_devices_and_links_are_refused() -> None:
    good = MeshNetwork.build(3, [(0, 1), (1, 2)], np.ones((3, 3)), [1] * 3)
    for epsilon in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(BadMeshInput, match="epsilon"):
            MeshRules(epsilon)
    with pytest.raises(BadMeshInput, match="basic_batch"):
        MeshRules(basic_batch=0)
    with pytest.raises(BadMeshInput, match="max_degree"):
        MeshRules(max_degree=0)
    with pytest.raises(BadMeshInput, match="transfers"):
        MeshRules(transfers="serial")  # type: ignore[arg-type]
    with pytest.raises(BadMeshInput, match="devices"):
        MeshNetwork.build(0, [], [], [])
    with pytest.raises(BadMeshInput, match="samples"):
        MeshNetwork.build(2, [(0, 1)], np.ones((2, 2)), [1, 1], samples=[1])
    with pytest.raises(UnknownMeshDevice, match="unknown device"):
        MeshNetwork.build(2, [(0, 2)], np.ones((2, 2)), [1, 1])
    with pytest.raises(UnknownMeshDevice, match="itself"):
        evaluate_links(good, MeshRules(), [(1, 1)])
    with pytest.raises(NotConnected, match=r"\{0, 1\} and \{2\}"):
        evaluate_links(good, MeshRules(), [(0, 1)])


def test_untrusted_devices_can_still_be_evaluated_on_links_given() -> None:
    network = MeshNetwork.build(3, [], np.ones((3, 3)), [1] * 3)
    plan = evaluate_links(network, MeshRules(), [(0, 1), (1, 2), (0, 2)])
    assert (plan.dp_devices, plan.dp_budget) == ((0, 1, 2), 3)
    assert plan.figures.pseudo_training_time == pytest.approx(4 * 2 * (1 + (1 / 0.75) ** 2))


def test_baselines_are_what_they_say() -> None:
    network = random_network(3, 12, "radio", 0.2)
    links = {
        "social": social_links(network),
        "ring": ring_links(12),
        "complete": complete_links(12),
        "expander": expander_links(12, 4, np.random.default_rng(1)),
    }
    plans = {name: evaluate_links(network, MeshRules(), pairs) for name, pairs in links.items()}
    assert plans["social"].dp_devices == ()
    assert len(plans["ring"].pairs) == 12
    assert len(plans["complete"].pairs) == 66
    graph = nx.Graph(plans["expander"].pairs)
    assert nx.is_connected(graph)
    assert {degree for _, degree in graph.degree} == {4}
    assert expander_links(12, 4, np.random.default_rng(1)) == expander_links(12, 4, np.random.default_rng(1))
    with pytest.raises(BadMeshInput, match="3-regular"):
        expander_links(5, 3, np.random.default_rng(0))

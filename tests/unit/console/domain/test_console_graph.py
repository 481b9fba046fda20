"""Drawings of the trust graph stay small and state what they leave out."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.console.domain.graph import MOST_LINKS, MOST_NODES, Graph, Lens, communities, draw


def document(sizes: list[int], bridges: int = 0, owners: int = 3, trust: float = 0.9) -> dict[str, Any]:
    """Cliques of some sizes, with a few weak ties between them."""
    count = sum(sizes)
    devices = [
        {"id": f"dev_{n}", "name": f"device {n}", "owner_id": f"own_{n % owners}", "kind": "", "state": "active"}
        for n in range(count)
    ]
    ties, start, firsts = [], 0, []
    for size in sizes:
        firsts.append(start)
        ties += [(a, b, trust) for a, b in combinations(range(start, start + size), 2)]
        start += size
    ties += [(firsts[n % len(sizes)], firsts[(n + 1) % len(sizes)], 0.05) for n in range(bridges)]
    tied = [{"device_a": f"dev_{a}", "device_b": f"dev_{b}", "direct": t, "relations": []} for a, b, t in ties]
    return {"devices": devices, "ties": tied, "at": 0.0}


def test_cliques_are_found_as_communities() -> None:
    graph = Graph.of(document([6, 4, 3], bridges=3))
    assert [int(item) for item in np.bincount(graph.community)] == [6, 4, 3]
    for start, size in ((0, 6), (6, 4), (10, 3)):
        assert len(set(graph.community[start : start + size])) == 1


def test_the_same_graph_gives_the_same_communities() -> None:
    first, second = (Graph.of(document([9, 7, 5, 5], bridges=4)).community for _ in range(2))
    assert (first == second).all()


def test_strangers_are_communities_of_one() -> None:
    none = np.array([], dtype=np.int64)
    assert sorted(communities(3, none, none, np.array([]))) == [0, 1, 2]


def test_few_devices_are_drawn_one_by_one_with_every_tie() -> None:
    drawing = draw(Graph.of(document([5, 4])), Lens(), {})
    assert len(drawing.nodes) == 9
    assert len(drawing.links) == 10 + 6
    assert drawing.summary == "9 devices, 16 ties"


def test_many_devices_are_drawn_as_groups_that_count_them() -> None:
    graph = Graph.of(document([20] * 15, bridges=15))
    drawing = draw(graph, Lens(), {})
    assert {node.kind for node in drawing.nodes} == {"group"}
    assert len(drawing.nodes) == 15
    assert all(node.about == "20 devices" for node in drawing.nodes)
    assert "300 devices in 15 communities" in drawing.summary


def test_groups_by_owner_carry_the_owners_names() -> None:
    drawing = draw(Graph.of(document([20] * 15)), Lens(by="owner"), {"own_0": "Ada"})
    assert sorted(node.name for node in drawing.nodes) == ["Ada", "own_1", "own_2"]


def test_a_group_opens_into_its_devices() -> None:
    graph = Graph.of(document([20] * 15, bridges=15))
    drawing = draw(graph, Lens(group=3), {})
    assert len(drawing.nodes) == 20
    assert {node.kind for node in drawing.nodes} == {"device"}


def test_a_selected_device_is_drawn_with_all_its_peers() -> None:
    graph = Graph.of(document([20] * 15, bridges=15))
    drawing = draw(graph, Lens(device="dev_0"), {})
    assert len(drawing.nodes) == 20 + 2  # its clique, and the two next to it
    assert next(node for node in drawing.nodes if node.id == "dev_0").ring


def test_a_trust_filter_leaves_weaker_ties_out() -> None:
    graph = Graph.of(document([4, 4], bridges=2))
    assert len(draw(graph, Lens(), {}).links) == 14
    assert len(draw(graph, Lens(least=0.5), {}).links) == 12


def test_revoked_devices_are_left_out_unless_asked_for() -> None:
    given_ = document([4])
    given_["devices"][0]["state"] = "revoked"
    graph = Graph.of(given_)
    assert len(draw(graph, Lens(), {}).nodes) == 3
    assert len(draw(graph, Lens(state=""), {}).nodes) == 4


def test_an_empty_graph_is_drawn_empty() -> None:
    assert draw(Graph.of({"devices": [], "ties": [], "at": 0.0}), Lens(), {}).nodes == []


def test_a_tie_to_an_unknown_device_is_left_out() -> None:
    given_ = document([3])
    given_["ties"].append({"device_a": "dev_0", "device_b": "dev_hidden", "direct": 1.0, "relations": []})
    assert len(draw(Graph.of(given_), Lens(), {}).links) == 3


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=12),
    st.sampled_from(["owner", "community"]),
    st.integers(-1, 3),
    st.floats(0, 1),
)
def test_drawings_are_bounded_and_links_join_drawn_nodes(sizes: list[int], by: str, group: int, least: float) -> None:
    graph = Graph.of(document(sizes, bridges=3, owners=40))
    drawing = draw(graph, Lens(by=by, group=group, least=least), {})
    assert len(drawing.nodes) <= MOST_NODES + 1
    assert len(drawing.links) <= MOST_LINKS
    shown = {node.id for node in drawing.nodes}
    assert all(link.a in shown and link.b in shown for link in drawing.links)


def test_a_search_finds_names_and_ids_prefixes_first() -> None:
    given_ = document([3])
    given_["devices"][0]["name"] = "kitchen lamp"
    given_["devices"][1]["name"] = "lamp"
    graph = Graph.of(given_)
    assert graph.search("LAMP") == [1, 0]
    assert graph.search("dev_2") == [2]
    assert graph.search("") == []
    assert graph.search("unknown") == []

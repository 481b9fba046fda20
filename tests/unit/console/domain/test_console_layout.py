"""Layout of many nodes."""

from __future__ import annotations

import numpy as np

from services.console.domain.layout import places
from services.console.domain.network import Drawing, Link, Node


def two_groups(size: int) -> Drawing:
    nodes = [Node(f"{side}{n}", "", group) for group, side in enumerate("ab") for n in range(size)]
    links = [Link(f"{side}{n}", f"{side}{m}") for side in "ab" for n in range(size) for m in range(n)]
    return Drawing(nodes, links)


def test_the_layout_fills_the_frame_and_is_deterministic() -> None:
    drawing = two_groups(20)
    first, second = places(drawing), places(drawing)
    assert (first == second).all()
    assert np.isfinite(first).all()
    assert np.abs(first).max() == 1.0


def test_connected_nodes_stand_together() -> None:
    place = places(two_groups(20))
    first, second = place[:20], place[20:]
    spread = max(first.std(axis=0).max(), second.std(axis=0).max())
    assert np.linalg.norm(first.mean(axis=0) - second.mean(axis=0)) > 2.0 * spread


def test_empty_and_single_node_drawings_have_a_layout() -> None:
    assert places(Drawing()).shape == (0, 2)
    assert (places(Drawing([Node("a", "")], [])) == 0).all()
    assert np.isfinite(places(Drawing([Node(f"n{n}", "") for n in range(100)], []))).all()

"""Connected samples of social graphs."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie_lab.datasets.sampling import TooSmall, connected_sample


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 500), st.integers(1, 12))
def test_a_sample_has_so_many_nodes_and_is_connected(seed: int, count: int) -> None:
    graph = nx.gnp_random_graph(40, 0.08, seed=seed)
    ties = [(int(a), int(b)) for a, b in graph.edges]
    largest = max((len(part) for part in nx.connected_components(graph) if len(part) > 1), default=0)
    if largest < count:
        with pytest.raises(TooSmall, match=f"{count} nodes; ask for fewer"):
            connected_sample(ties, count, np.random.default_rng(seed))
        return
    chosen = connected_sample(ties, count, np.random.default_rng(seed))
    assert len(chosen) == count
    assert nx.is_connected(graph.subgraph(chosen))
    assert chosen == connected_sample(ties, count, np.random.default_rng(seed)), "the same seed gives the same sample"


def test_a_sample_is_breadth_first() -> None:
    """A star with a tail: five nodes from its centre are the centre and its leaves, never the tail's end."""
    ties = [(0, leaf) for leaf in range(1, 6)] + [(5, 6), (6, 7)]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        chosen = connected_sample(ties, 6, rng)
        assert {0} < set(chosen)
        assert 7 not in chosen or 6 in chosen

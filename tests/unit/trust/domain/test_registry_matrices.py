"""Sparse matrices of trust agree with the dense ones."""

from __future__ import annotations

import numpy as np
import pytest

from services.trust.domain import matrices
from services.trust.domain.graph import TrustGraph
from services.trust.domain.scores import trust_rows
from services.trust.errors import TooMany


def town(size: int, ties: int, seed: int) -> TrustGraph:
    generator = np.random.default_rng(seed)
    all_ties = np.argwhere(np.triu(np.ones((size, size)), 1))
    chosen = all_ties[generator.choice(len(all_ties), ties, replace=False)]
    return TrustGraph.from_ties(size, chosen[:, 0], chosen[:, 1], generator.uniform(0.05, 1.0, ties))


@pytest.mark.parametrize("seed", range(5))
def test_entries_are_the_positive_part_of_the_dense_matrix_bit_for_bit(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrices, "_BLOCK", 7)
    graph = town(40, 45, seed)
    devices = np.random.default_rng(seed).permutation(40)[:25].astype(np.int64)
    dense = trust_rows(graph, devices, 0.8)
    found = matrices.entries_among(graph, devices, 0.8)
    expected = np.argwhere(np.triu(dense.trust, 1) > 0)
    assert np.column_stack((found.rows, found.columns)).tolist() == expected.tolist()
    assert found.trust.tolist() == dense.trust[found.rows, found.columns].tolist()
    assert found.direct.tolist() == dense.direct[found.rows, found.columns].tolist()


def test_nobody_and_somebody_alone_have_no_entries() -> None:
    graph = town(5, 4, 0)
    for devices in ([], [3]):
        assert len(matrices.entries_among(graph, np.array(devices, dtype=np.int64), 0.8).rows) == 0


def test_more_entries_than_a_message_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrices, "MOST_ENTRIES", 5)
    graph = TrustGraph.from_ties(4, [0, 0, 0], [1, 2, 3], [1.0, 1.0, 1.0])
    with pytest.raises(TooMany, match="fewer devices"):
        matrices.entries_among(graph, np.arange(4), 0.8)

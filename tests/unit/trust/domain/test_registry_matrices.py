"""Sparse matrices of trust agree with the dense ones."""

from __future__ import annotations

import numpy as np
import pytest

from services.trust.domain import matrices
from services.trust.domain.graph import TrustGraph
from services.trust.domain.scores import trust_rows


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
    result = matrices.entries_among(graph, devices, 0.8)
    expected = np.argwhere(np.triu(dense.trust, 1) > 0)
    assert np.column_stack((result.rows, result.columns)).tolist() == expected.tolist()
    assert result.trust.tolist() == dense.trust[result.rows, result.columns].tolist()
    assert result.direct.tolist() == dense.direct[result.rows, result.columns].tolist()


def test_no_device_and_a_single_device_have_no_entries() -> None:
    graph = town(5, 4, 0)
    for devices in ([], [3]):
        assert len(matrices.entries_among(graph, np.array(devices, dtype=np.int64), 0.8).rows) == 0


@pytest.mark.parametrize("most", [30, 64, 200])
def test_many_pairs_come_in_pieces_each_pair_once(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = town(40, 60, 1)
    devices = np.random.default_rng(1).permutation(40)[:30].astype(np.int64)
    whole = matrices.entries_among(graph, devices, 0.8)
    monkeypatch.setattr(matrices, "MOST_ENTRIES", most)
    piece, result = 0, {}
    while True:
        part = matrices.entries_among(graph, devices, 0.8, piece)
        assert len(part.rows) <= most
        pairs = zip(part.rows.tolist(), part.columns.tolist(), part.direct.tolist(), part.trust.tolist(), strict=True)
        for row, column, direct, trust in pairs:
            assert (row, column) not in result
            result[row, column] = (direct, trust)
        piece = part.following
        if not piece:
            break
    expected = zip(
        whole.rows.tolist(), whole.columns.tolist(), whole.direct.tolist(), whole.trust.tolist(), strict=True
    )
    assert result == {(row, column): (direct, trust) for row, column, direct, trust in expected}

"""Stored updates as rows: the same numbers in windows of any size, and the store read as little as can be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from services.aggregation.domain.rules import rows as rows_module
from services.aggregation.domain.rules.axis import rule_for
from services.aggregation.domain.rules.combining import combine
from services.aggregation.domain.rules.outlying import distances_from
from services.aggregation.domain.rules.rows import ArrayRows
from services.aggregation.store import updates as module
from services.aggregation.store.model_files import ModelFiles
from services.aggregation.store.updates import StoredUpdate, StoredUpdates
from services.kit.database.blobs import BlobStore

VALUES = np.random.default_rng(0).normal(size=(7, 50)).astype(np.float32)
RULES = [("trimmed-mean", {"f": 2}), ("multi-krum", {"f": 2}), ("centred-clipping", {"radius": 3.0, "iterations": 2})]


def stored(folder: Path, divisors: list[float]) -> StoredUpdates:
    """Updates of two tensors, each with its divisor."""
    blobs = BlobStore.in_folder(folder)
    model_files, result = ModelFiles(blobs), []
    for row, divisor in zip(VALUES, divisors, strict=True):
        digest, size = blobs.put_pieces(iter([save({"a": row[:20].reshape(4, 5), "b": row[20:]})]))
        layout = model_files.layout(digest, size)
        result.append(StoredUpdate(digest, divisor, {tensor.name: tensor for tensor in layout.tensors}))
    return StoredUpdates(blobs, layout, result)


@pytest.mark.parametrize("window", [7 * 50, 7 * 13])
@pytest.mark.parametrize(("name", "parameters"), RULES)
def test_rules_make_the_same_of_stored_updates_as_of_those_in_memory(
    name: str, parameters: dict[str, float], window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WINDOW_CELLS", window)
    monkeypatch.setattr(rows_module, "CELLS", 7 * 6)
    divisors = [1.0, 2.0, 1.0, 4.0, 1.0, 1.0, 1.0]
    plain = VALUES.astype(np.float64) / np.array(divisors)[:, None]
    rows = stored(tmp_path, divisors)
    result, run = combine(rule_for(name, parameters), rows)
    expected, again = combine(rule_for(name, parameters), ArrayRows.of(plain))
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    assert (run.used, run.set_aside) == (again.used, again.set_aside)
    np.testing.assert_allclose(distances_from(rows, [result]), np.linalg.norm(plain - expected, axis=1), rtol=1e-12)


def test_updates_within_one_window_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = stored(tmp_path, [1.0] * 7)
    reads: Counter[str] = Counter()
    read = BlobStore.read

    def counted(self: BlobStore, digest: str, start: int, length: int) -> memoryview:
        reads[digest] += 1
        return read(self, digest, start, length)

    monkeypatch.setattr(BlobStore, "read", counted)
    result, _ = combine(rule_for("multi-krum", {"f": 2}), rows)
    distances_from(rows, [result])
    assert set(reads.values()) == {2}, "one for each tensor"
    chosen = rows.only([3, 1]).only([1])
    assert chosen.keys == [rows.keys[1]]
    chosen.read(0, 50)[:] = 0.0
    np.testing.assert_array_equal(rows.read(0, 50), VALUES, "a copy is given away")

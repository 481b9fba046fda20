"""Accumulator: the mean of updates, the same bits in any order and any grouping."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from services.aggregation.domain import accumulator as acc
from services.aggregation.domain.accumulator import Accumulator, choose_scale
from services.aggregation.domain.layout import PREFIX_BYTES, Layout, header_length, parse
from services.aggregation.domain.model_steps import add_change
from services.aggregation.errors import BadModel, BadUpdate

Tensors = dict[str, npt.NDArray[np.floating]]


def read_of(data: bytes) -> Callable[[int, int], bytes]:
    return lambda start, length: data[start : start + length]


def layout_of(data: bytes) -> Layout:
    length = header_length(data[:PREFIX_BYTES], len(data))
    return parse(data[PREFIX_BYTES : PREFIX_BYTES + length], len(data))


def update(seed: int, shapes: Mapping[str, tuple[int, ...]], dtype: str = "float32") -> bytes:
    rng = np.random.default_rng(seed)
    return save({name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()})


SHAPES = {"w": (3, 5), "b": (5,), "scalar": ()}


def mean_of(base: bytes, updates: list[tuple[bytes, float]]) -> bytes:
    layout = layout_of(base)
    total = Accumulator(layout, choose_scale(len(updates), max(w for _, w in updates)), len(updates))
    for data, weight in updates:
        total.fold(layout_of(data), read_of(data), weight)
    return b"".join(add_change(layout, base[: layout.header_bytes], read_of(base), total.means()))


def test_two_updates_by_hand() -> None:
    base = save({"w": np.array([1.0, 2.0], np.float32)})
    one = save({"w": np.array([0.5, -1.0], np.float32)})
    two = save({"w": np.array([1.5, 1.0], np.float32)})
    # (1·0.5 + 3·1.5)/4 = 1.25 and (−1 + 3)/4 = 0.5, added to 1 and 2
    assert load(mean_of(base, [(one, 1), (two, 3)]))["w"].tolist() == [2.25, 2.5]


@given(
    weights=st.lists(st.floats(0.01, 1e6), min_size=1, max_size=8),
    order=st.randoms(use_true_random=False),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
)
def test_order_never_changes_a_bit_and_the_mean_is_right(weights: list[float], order: object, dtype: str) -> None:
    """Any permutation of arrivals gives identical bytes, equal to the float64 mean within float rounding."""
    base = update(0, SHAPES, dtype)
    updates = [(update(i + 1, SHAPES, dtype), w) for i, w in enumerate(weights)]
    shuffled = updates.copy()
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    result = mean_of(base, updates)
    assert mean_of(base, shuffled) == result
    for name, value in load(result).items():
        mean = sum(w * load(data)[name].astype(np.float64) for data, w in updates) / sum(weights)
        expected = load(base)[name].astype(np.float64) + mean
        tolerance = {"float16": 4e-3, "float32": 1e-6, "float64": 1e-6}[dtype]
        np.testing.assert_allclose(value.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@given(cut=st.integers(0, 6), weights=st.lists(st.floats(0.1, 100.0), min_size=6, max_size=6))
def test_partial_sums_of_two_replicas_merge_to_the_same_bits(cut: int, weights: list[float]) -> None:
    base = update(0, SHAPES)
    layout = layout_of(base)
    updates = [(update(i + 1, SHAPES), w) for i, w in enumerate(weights)]
    left, right = (Accumulator(layout, choose_scale(6, 100.0), 6) for _ in range(2))
    for i, (data, weight) in enumerate(updates):
        (left if i < cut else right).fold(layout_of(data), read_of(data), weight)
    left.merge(right.pieces(), right.weight_units)
    whole = Accumulator(layout, choose_scale(6, 100.0), 6)
    for data, weight in updates:
        whole.fold(layout_of(data), read_of(data), weight)
    assert left.weight_units == whole.weight_units
    assert np.array_equal(np.concatenate(list(left.pieces())), np.concatenate(list(whole.pieces())))


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e30])
def test_a_poisoned_update_leaves_no_trace(poison: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused in the last chunk of the last tensor, after everything else was folded."""
    monkeypatch.setattr(acc, "CHUNK", 4)
    monkeypatch.setattr(acc, "WINDOW", 8)
    monkeypatch.setattr(acc, "IN_MEMORY", 0)
    shapes = {"a": (30,), "b": (21,)}
    base = update(0, shapes)
    layout = layout_of(base)
    total = Accumulator(layout, choose_scale(3, 10.0), 3)
    good = update(1, shapes)
    total.fold(layout_of(good), read_of(good), 2.0)
    before = np.concatenate(list(total.pieces()))
    tensors = load(update(2, shapes))
    tensors["b"][-1] = poison
    bad = save(tensors)
    with pytest.raises(BadUpdate, match="'b' holds"):
        total.fold(layout_of(bad), read_of(bad), 10.0)
    assert np.array_equal(np.concatenate(list(total.pieces())), before)
    assert total.weight == 2.0
    total.unfold(layout_of(good), read_of(good), 2.0)
    assert not np.concatenate(list(total.pieces())).any()
    assert total.weight == 0.0
    total.close()


def test_a_sum_is_folded_as_it_is_and_counts_its_whole_weight() -> None:
    base = save({"w": np.zeros(2, np.float32)})
    cluster = save({"w": np.array([6.0, 3.0], np.float32)})  # 2·[2, 0] + 1·[2, 3]
    layout = layout_of(base)
    total = Accumulator(layout, choose_scale(2, 3.0), 2)
    total.fold(layout, read_of(cluster), 3.0, is_sum=True)
    assert load(b"".join(add_change(layout, base[: layout.header_bytes], read_of(base), total.means())))[
        "w"
    ].tolist() == [2.0, 1.0]
    assert total.total().tolist() == [6.0, 3.0]


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"w": np.zeros((5, 3), np.float32), "b": np.zeros(5, np.float32)}, "shape"),
        ({"w": np.zeros((3, 5), np.float64), "b": np.zeros(5, np.float32)}, "dtype"),
        ({"w": np.zeros((3, 5), np.float32)}, "'b' is missing"),
        (
            {"w": np.zeros((3, 5), np.float32), "b": np.zeros(5, np.float32), "c": np.zeros(1, np.float32)},
            "'c' is not in",
        ),
    ],
)
def test_an_update_that_does_not_fit_says_why(tensors: Tensors, reason: str) -> None:
    base = update(0, {"w": (3, 5), "b": (5,)})
    data = save(tensors)
    total = Accumulator(layout_of(base), 20, 1)
    with pytest.raises(BadUpdate, match=reason):
        total.fold(layout_of(data), read_of(data), 1.0)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_never_taken_for_a_model(data: bytes) -> None:
    with pytest.raises(BadModel):
        layout_of(data)


@pytest.mark.parametrize(
    "header",
    [
        b'{"w":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}',
        b'{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}',
        b'{"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}',
        b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
        b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        b'{"w":1}',
        b"[]",
        b"{}",
    ],
)
def test_a_lying_header_is_refused(header: bytes) -> None:
    with pytest.raises(BadModel):
        parse(header, PREFIX_BYTES + len(header) + 8)


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=30), st.floats(0.5, 1e4), st.booleans())
def test_folding_tells_the_norm_of_all_numbers_together(values: list[float], weight: float, is_sum: bool) -> None:
    data = save({"a": np.array(values, np.float32), "b": np.ones((2, 2), np.float64)})
    layout = layout_of(data)
    total = Accumulator(layout, choose_scale(1, weight), 1)
    result = total.fold(layout, read_of(data), weight, is_sum=is_sum)
    assert result == pytest.approx(math.sqrt(float((np.array(values) ** 2).sum()) + 4.0))

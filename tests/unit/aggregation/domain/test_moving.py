"""Model and state files: read and written a window at a time, the same whatever the windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from services.aggregation.domain import model_steps
from services.aggregation.domain.layout import PREFIX_BYTES, Layout, header_length, parse
from services.aggregation.domain.rules.optimisers import Adaptive, Momentum, Optimiser, first_state
from services.aggregation.errors import BadUpdates

Vector = npt.NDArray[np.float64]


def layout_of(file: bytes) -> Layout:
    return parse(file[PREFIX_BYTES : PREFIX_BYTES + header_length(file[:PREFIX_BYTES], len(file))], len(file))


def reader(file: bytes) -> Callable[[int, int], bytes]:
    return lambda start, length: file[start : start + length]


def pieces(values: Vector, cuts: list[int]) -> Iterator[Vector]:
    yield from np.split(values, sorted(cut % (len(values) + 1) for cut in cuts))


@given(st.lists(st.integers(0, 100), max_size=6), st.integers(1, 9))
def test_a_change_in_pieces_of_any_size_moves_every_tensor(cuts: list[int], window: int) -> None:
    model: dict[str, npt.NDArray[Any]] = {
        "b": np.arange(5, dtype=np.float32),
        "a": np.ones((2, 3), np.float64),
        "c": np.zeros(2, np.float16),
    }
    file = save(model)
    layout = layout_of(file)
    change = np.linspace(-1, 1, layout.elements)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_steps, "WINDOW", window)
        header = file[: layout.header_bytes]
        moved = b"".join(model_steps.add_change(layout, header, reader(file), pieces(change, cuts)))
    result, expected = load(moved), load(file)
    for tensor in layout.tensors:
        part = change[tensor.offset : tensor.offset + tensor.elements].reshape(tensor.shape)
        expected[tensor.name] = (expected[tensor.name] + part).astype(expected[tensor.name].dtype)
        np.testing.assert_array_equal(result[tensor.name], expected[tensor.name])


@pytest.mark.parametrize("optimiser", [Momentum(0.5, 0.9), Adaptive("fedyogi", 0.1, 0.9, 0.99, 1e-3)])
@given(cuts=st.lists(st.integers(0, 100), max_size=6), window=st.integers(1, 9))
def test_a_state_is_a_sound_file_and_carries_on(optimiser: Optimiser, cuts: list[int], window: int) -> None:
    """Three steps by files give the same bits as three steps in memory."""
    file = save({"w": np.linspace(-1, 1, 13)})
    read_state = model_steps.first_reader(optimiser)
    model, state = np.linspace(-1, 1, 13), first_state(optimiser, 13)
    for number in range(3):
        change = np.cos(np.arange(13) + number)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model_steps, "WINDOW", window)
            stored = b"".join(model_steps.remember(optimiser, 13, read_state, lambda: pieces(change, cuts)))  # noqa: B023 - used at once
            read_state = model_steps.state_reader(layout_of(stored), reader(stored))
            layout = layout_of(file)
            header, again = file[: layout.header_bytes], lambda: pieces(change, cuts)  # noqa: B023 - used at once
            file = b"".join(model_steps.advance(layout, header, reader(file), optimiser, read_state, again))
        state = optimiser.remember(state, change)
        model = optimiser.advance(model, state)
        assert set(load(stored)) == set(optimiser.memory)
        for name, values in state.items():
            np.testing.assert_array_equal(load(stored)[name], values)
        np.testing.assert_array_equal(load(file)["w"], model)


@given(window=st.integers(1, 9))
def test_running_statistics_take_mean_change_as_it_is_whatever_optimiser(window: int) -> None:
    """A variance that an optimiser steps may turn negative; as a mean of variances it cannot."""
    optimiser = Adaptive("fedadam", 1.0, 0.9, 0.99, 1e-3)
    file = save({"bn.running_var": np.full(4, 0.2), "w": np.full(5, 0.2)})
    layout, change = layout_of(file), np.full(9, -0.1)
    state = optimiser.remember(first_state(optimiser, 9), change)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_steps, "WINDOW", window)
        moved = b"".join(
            model_steps.advance(
                layout,
                file[: layout.header_bytes],
                reader(file),
                optimiser,
                lambda start, stop: {name: values[start:stop] for name, values in state.items()},
                lambda: pieces(change, [3]),
            )
        )
    np.testing.assert_allclose(load(moved)["bn.running_var"], 0.1)
    assert (load(moved)["w"] < 0.0).all()  # the very step that must not be taken there


def test_a_step_out_of_the_tensors_range_is_refused() -> None:
    file = save({"w": np.ones(3, np.float16)})
    layout = layout_of(file)
    with pytest.raises(BadUpdates, match="leaves the range of F16 in tensor 'w'"):
        list(model_steps.add_change(layout, file[: layout.header_bytes], reader(file), [np.full(3, 1e6)]))

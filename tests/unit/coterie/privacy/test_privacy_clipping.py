"""Clipping of whole updates and of every example's gradient."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import nn

from coterie.privacy.clipping import Method, Norm, clip_update, clip_vector, clipped_gradients, update_norm
from coterie.privacy.clipping_layers import is_plain_stack

UPDATES = st.dictionaries(
    st.sampled_from(["weight", "bias", "scale"]),
    arrays.arrays(
        st.sampled_from([np.float32, np.float64]),
        arrays.array_shapes(max_dims=2, max_side=5),
        elements=st.floats(-1e6, 1e6, width=32),
    ),
    max_size=3,
)
NORMS = st.sampled_from(["l1", "l2"])


@settings(max_examples=50, deadline=None)
@given(UPDATES, st.floats(1e-3, 1e3), NORMS)
def test_clipped_update_is_within_bound_and_clipping_again_changes_nothing(
    update: dict[str, np.ndarray], bound: float, norm: Norm
) -> None:
    once = clip_update(update, bound, norm)
    assert update_norm(once.tensors, norm) <= bound
    twice = clip_update(once.tensors, bound, norm)
    assert twice.factor == 1.0
    for name, tensor in update.items():
        assert once.tensors[name].dtype == tensor.dtype
        np.testing.assert_array_equal(twice.tensors[name], once.tensors[name])
        np.testing.assert_allclose(once.tensors[name], tensor * once.factor, rtol=1e-5, atol=1e-30)


@settings(max_examples=50, deadline=None)
@given(UPDATES)
def test_an_update_within_the_bound_is_left_alone(update: dict[str, np.ndarray]) -> None:
    clipped = clip_update(update, 1e12)
    for name, tensor in update.items():
        np.testing.assert_array_equal(clipped.tensors[name], tensor)


def test_the_whole_update_is_clipped_by_one_factor() -> None:
    """‖(3, 4, 12)‖ = 13 over two tensors; bound 6.5 halves every entry; the L1 norm is 19."""
    update = {"a": np.array([3.0, 4.0]), "b": np.array([[12.0]])}
    clipped = clip_update(update, 6.5)
    assert clipped.norm_before == 13.0
    np.testing.assert_allclose(clipped.tensors["a"], [1.5, 2.0])
    np.testing.assert_allclose(clipped.tensors["b"], [[6.0]])
    assert clip_update(update, 9.5, "l1").factor == pytest.approx(0.5)


def test_enormous_values_do_not_overflow_the_norm() -> None:
    assert clip_vector(np.array([3e200, 4e200]), 5.0) == pytest.approx([3.0, 4.0])


def test_values_that_are_not_finite_and_whole_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'w' holds values that are not finite"):
        clip_update({"w": np.array([1.0, math.nan])}, 1.0)
    with pytest.raises(ValueError, match="int64, not floats"):
        clip_update({"steps": np.array([1])}, 1.0)
    with pytest.raises(ValueError, match="bound must be positive, got 0"):
        clip_vector(np.ones(2), 0.0)


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


def convolution() -> nn.Module:
    torch.manual_seed(6)
    return nn.Sequential(nn.Conv1d(2, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(6, 3))


def examples(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(11)
    return torch.randn(count, 2, 3, generator=generator), torch.randint(0, 3, (count,), generator=generator)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("method", ["auto", "vectorised"])
@pytest.mark.parametrize("model", [network(), nn.Sequential(nn.Flatten(), nn.Linear(6, 3, bias=False)), convolution()])
def test_all_methods_give_the_sum_of_gradients_clipped_one_by_one(model: nn.Module, method: Method, norm: Norm) -> None:
    inputs, targets = examples(7)
    loss = nn.functional.cross_entropy
    fast = clipped_gradients(model, loss, inputs, targets, 0.5, norm=norm, method=method, chunk_size=3)
    slow = clipped_gradients(model, loss, inputs, targets, 0.5, norm=norm, method="loop")
    assert bool((fast.norms > 0.5).any())
    torch.testing.assert_close(fast.norms, slow.norms)
    for name, parameter in model.named_parameters():
        assert fast.total[name].shape == parameter.shape
        torch.testing.assert_close(fast.total[name], slow.total[name])


def test_only_stacks_that_cannot_mix_examples_are_taken_by_layers() -> None:
    inputs, _ = examples(4)
    shared = nn.Linear(6, 6)
    assert is_plain_stack(network(), inputs)
    assert is_plain_stack(nn.Linear(6, 2), inputs.flatten(1))
    assert not is_plain_stack(nn.Linear(3, 2), inputs)  # an example has two rows: their products add up
    assert not is_plain_stack(nn.Sequential(nn.Flatten(0), nn.Linear(24, 2)), inputs)
    assert not is_plain_stack(nn.Sequential(nn.Flatten(), shared, shared), inputs)
    assert not is_plain_stack(nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Softmax(dim=0)), inputs)
    assert not is_plain_stack(convolution(), inputs)
    hooked = network()
    hooked.register_forward_hook(lambda module, arguments, output: output - output.mean(0))
    assert not is_plain_stack(hooked, inputs)


def test_without_clipping_the_mean_is_the_ordinary_gradient() -> None:
    model, (inputs, targets) = network(), examples(5)
    clipped = clipped_gradients(model, nn.functional.cross_entropy, inputs, targets, 1e9)
    nn.functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]  # torch has no stub
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(clipped.total[name] / 5, parameter.grad)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 5), st.floats(0.01, 2.0))
def test_one_example_moves_the_sum_by_at_most_the_bound(example: int, bound: float) -> None:
    """Sensitivity of adding or removing one example: the clip bound."""
    model, (inputs, targets) = network(), examples(6)
    keep = torch.arange(6) != example
    whole = clipped_gradients(model, nn.functional.cross_entropy, inputs, targets, bound).total
    less = clipped_gradients(model, nn.functional.cross_entropy, inputs[keep], targets[keep], bound).total
    moved = torch.cat([(whole[name] - less[name]).flatten() for name in whole])
    assert float(moved.norm()) <= bound * (1 + 1e-4)


@pytest.mark.parametrize("method", ["auto", "vectorised", "loop"])
def test_an_example_whose_gradient_is_not_finite_moves_the_sum_by_nothing(method: Method) -> None:
    """Refusing to go on would tell that it is there, which no noise covers; without a bound it is refused."""
    inputs, targets = examples(5)
    others = clipped_gradients(network(), nn.functional.cross_entropy, inputs[1:], targets[1:], 0.5, method=method)
    inputs[0] = torch.nan
    result = clipped_gradients(network(), nn.functional.cross_entropy, inputs, targets, 0.5, method=method)
    for name, value in others.total.items():
        torch.testing.assert_close(result.total[name], value)
    with pytest.raises(ValueError, match="an example's gradient is not finite"):
        clipped_gradients(network(), nn.functional.cross_entropy, inputs, targets, math.inf, method=method)


def test_frozen_parameters_have_no_gradient_and_no_examples_give_zeros() -> None:
    model = network()
    next(model.parameters()).requires_grad_(False)
    methods: tuple[Method, ...] = ("auto", "vectorised", "loop")
    for method in methods:
        inputs, targets = examples(3)
        some = clipped_gradients(model, nn.functional.cross_entropy, inputs, targets, 1.0, method=method)
        assert set(some.total) == {"1.bias", "3.weight", "3.bias"}
        none = clipped_gradients(model, nn.functional.cross_entropy, inputs[:0], targets[:0], 1.0, method=method)
        assert none.norms.shape == (0,)
        assert not any(bool(value.any()) for value in none.total.values())


def test_batch_normalisation_is_refused_because_it_mixes_examples() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    with pytest.raises(ValueError, match="BatchNorm1d, which mixes examples"):
        clipped_gradients(model, nn.functional.mse_loss, torch.ones(2, 6), torch.ones(2, 4), 1.0)


def test_a_missing_target_is_refused() -> None:
    inputs, targets = examples(3)
    with pytest.raises(ValueError, match="3 inputs but 2 targets"):
        clipped_gradients(network(), nn.functional.cross_entropy, inputs, targets[:2], 1.0)

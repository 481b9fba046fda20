"""Local training: the same bits from the same seed, the same steps as torch's own optimiser, models as plain arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from coterie.errors import Declined, WrongModel
from coterie.learning.models import Flat
from coterie.learning.torch_learner import TorchLearner
from coterie.learning.training import model_bytes, seeded, single_threaded
from coterie.learning.training_config import Instructions

single_threaded()


def module() -> torch.nn.Module:
    with seeded(1):
        return torch.nn.Sequential(
            torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, 3)
        )


def samples(count: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(2))
    return inputs, inputs[:, :3].argmax(dim=1)


def flat(learner: TorchLearner) -> np.ndarray[Any, np.dtype[np.float64]]:
    return Flat.of(learner.parameters(), learner.trained()).vector(learner.parameters())


def test_two_steps_with_momentum_and_decay_worked_by_hand() -> None:
    """Loss w², w = 2, rate 0.1, momentum 0.9, decay 0.01.

    v₁ = 4 + 0.02 = 4.02, w₁ = 2 − 0.402 = 1.598;  v₂ = 0.9 · 4.02 + 3.196 + 0.01598 = 6.82998, w₂ = 0.915002.
    """
    model = torch.nn.Linear(1, 1, bias=False)
    trainer = TorchLearner(model, (torch.ones(1, 1), torch.zeros(1, 1)), loss=torch.nn.functional.mse_loss)
    trainer.load({"weight": np.array([[2.0]])})
    trainer.train(Instructions(epochs=2, learning_rate=0.1, momentum=0.9, weight_decay=0.01), seed=0)
    assert trainer.parameters()["weight"][0, 0] == pytest.approx(0.915002, abs=1e-6)


def test_two_proximal_steps_worked_by_hand() -> None:
    """Loss w², w⁰ = 2, rate 0.1, μ = 0.5. The pull starts at w⁰: w₁ = 2 − 0.1 · 4 = 1.6;
    w₂ = 1.6 − 0.1 · (3.2 + 0.5 · (1.6 − 2)) = 1.3."""
    model = torch.nn.Linear(1, 1, bias=False)
    trainer = TorchLearner(model, (torch.ones(1, 1), torch.zeros(1, 1)), loss=torch.nn.functional.mse_loss)
    trainer.load({"weight": np.array([[2.0]])})
    trainer.train(Instructions.of({"epochs": 2, "learning_rate": 0.1, "proximal": 0.5}), seed=0)
    assert trainer.parameters()["weight"][0, 0] == pytest.approx(1.3, abs=1e-6)


def test_a_stronger_pull_ends_nearer_to_the_rounds_model() -> None:
    def moved(mu: float) -> float:
        trainer = TorchLearner(module(), samples())
        before = flat(trainer)
        trainer.train(Instructions(epochs=5, learning_rate=0.05, proximal=mu), 1)
        return float(np.linalg.norm(flat(trainer) - before))

    assert moved(10.0) < moved(1.0) < moved(0.0)
    with pytest.raises(Declined, match="proximal: must be a number at least 0"):
        Instructions.of({"proximal": -1.0})


def test_frozen_parameters_stay() -> None:
    model = torch.nn.Linear(4, 3)
    model.bias.requires_grad_(False)
    before = model.bias.detach().clone()
    TorchLearner(model, samples()).train(Instructions(weight_decay=0.1), 1)
    assert torch.equal(before, model.bias)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    def trained(seed: int) -> bytes:
        trainer = TorchLearner(module(), samples())
        torch.rand(3)
        trainer.train(Instructions(epochs=2), seed)
        return model_bytes(trainer.module)

    assert trained(1) == trained(1) != trained(2)


def test_training_leaves_the_rest_of_the_process_its_random_numbers() -> None:
    state = torch.random.get_rng_state()
    TorchLearner(module(), samples()).train(Instructions(), 1)
    assert torch.equal(state, torch.random.get_rng_state())


def test_counters_do_not_travel_and_load_restores_what_does() -> None:
    trainer = TorchLearner(module(), samples())
    before = trainer.parameters()
    assert "1.num_batches_tracked" not in before
    trainer.train(Instructions(), 1)
    trainer.load(before)
    after = trainer.parameters()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_model_with_other_names_or_shapes_is_refused_by_name() -> None:
    trainer = TorchLearner(torch.nn.Linear(4, 3), samples())
    with pytest.raises(WrongModel, match="differ in bias"):
        trainer.load({"weight": np.zeros((3, 4), np.float32)})
    with pytest.raises(WrongModel, match=r"weight has shape \[4, 3\] in the task, \[3, 4\] here"):
        trainer.load({"weight": np.zeros((4, 3), np.float32), "bias": np.zeros(3, np.float32)})


def test_flat_parameters_go_out_and_in_unchanged() -> None:
    trainer = TorchLearner(module(), samples())
    before, names = trainer.parameters(), trainer.trained()
    one = Flat.of(before, names)
    vector = one.vector(before)
    assert (one.size, names) == (len(vector), tuple(name for name, _ in module().named_parameters()))
    trainer.load(one.put(vector * 2, before))
    assert np.allclose(one.vector(trainer.parameters()), vector * 2)
    with pytest.raises(ValueError, match="parameters"):
        one.put(vector[1:], before)


def test_clipped_gradients_under_a_wide_bound_equal_the_mean_gradient() -> None:
    """Σ_e g_e / n = ∇ mean loss, when no sample's gradient is clipped."""
    with seeded(1):
        model = torch.nn.Linear(4, 3)
    trainer = TorchLearner(model, samples())
    inputs, targets = samples()
    mean = torch.autograd.grad(torch.nn.functional.cross_entropy(model(inputs), targets), list(model.parameters()))
    for bound in (1e6, math.inf):
        total = trainer.gradient_sum(np.arange(30), bound)
        assert list(total) == ["weight", "bias"]
        for result, expected in zip(total.values(), mean, strict=True):
            assert np.allclose(result / 30, expected.numpy(), atol=1e-6)
    one = trainer.gradient_sum(np.array([3]), 1e-3)
    assert np.linalg.norm(np.concatenate([value.ravel() for value in one.values()])) == pytest.approx(1e-3, rel=1e-4)


def test_datasets_loaders_and_tensors_are_all_samples() -> None:
    inputs, targets = samples()
    dataset = TensorDataset(inputs, targets)
    measured = [
        TorchLearner(module(), data).evaluate()
        for data in ((inputs, targets), dataset, DataLoader(dataset, batch_size=512))
    ]
    assert measured[0] == measured[1] == measured[2]
    assert 0 <= measured[0]["accuracy"] <= 1
    for data in ((inputs, targets), dataset, DataLoader(dataset)):
        assert TorchLearner(module(), data).samples == 30


def test_a_regression_has_a_loss_but_no_accuracy() -> None:
    inputs = samples()[0]
    trainer = TorchLearner(torch.nn.Linear(4, 1), (inputs, inputs[:, :1]), loss=torch.nn.functional.mse_loss)
    assert set(trainer.evaluate()) == {"loss", "samples"}


def test_hints_that_make_no_sense_are_refused_and_plans_batch_size_wins() -> None:
    assert Instructions.of({"batch_size": 8, "colour": "red"}, 16).batch_size == 16
    with pytest.raises(Declined, match="training makes no sense"):
        Instructions.of({"epochs": -1})

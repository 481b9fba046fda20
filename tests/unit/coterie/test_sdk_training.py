"""Local training: the same bits from the same seed, the same steps as torch's own optimiser, models as plain arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from coterie.errors import WrongModel
from coterie.training import Recipe, Trainer, model_bytes, seeded, single_threaded

single_threaded()


def module() -> torch.nn.Module:
    with seeded(1):
        return torch.nn.Sequential(
            torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, 3)
        )


def samples(count: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(2))
    return inputs, inputs[:, :3].argmax(dim=1)


def test_two_steps_with_momentum_and_decay_worked_by_hand() -> None:
    """Loss w², w = 2, rate 0.1, momentum 0.9, decay 0.01.

    v₁ = 4 + 0.02 = 4.02, w₁ = 2 − 0.402 = 1.598;  v₂ = 0.9 · 4.02 + 3.196 + 0.01598 = 6.82998, w₂ = 0.915002.
    """
    model = torch.nn.Linear(1, 1, bias=False)
    trainer = Trainer(model, (torch.ones(1, 1), torch.zeros(1, 1)), loss=torch.nn.functional.mse_loss)
    trainer.set_parameters(np.array([2.0]))
    trainer.train(Recipe(epochs=2, learning_rate=0.1, momentum=0.9, weight_decay=0.01), seed=0)
    assert trainer.parameters()[0] == pytest.approx(0.915002, abs=1e-6)


def test_frozen_parameters_stay() -> None:
    model = torch.nn.Linear(4, 3)
    model.bias.requires_grad_(False)
    before = model.bias.detach().clone()
    Trainer(model, samples()).train(Recipe(weight_decay=0.1), 1)
    assert torch.equal(before, model.bias)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    def trained(seed: int) -> bytes:
        trainer = Trainer(module(), samples())
        torch.rand(3)
        trainer.train(Recipe(epochs=2), seed)
        return model_bytes(trainer.module)

    assert trained(1) == trained(1) != trained(2)


def test_training_leaves_the_rest_of_the_process_its_random_numbers() -> None:
    state = torch.random.get_rng_state()
    Trainer(module(), samples()).train(Recipe(), 1)
    assert torch.equal(state, torch.random.get_rng_state())


def test_counters_do_not_travel_and_load_restores_what_does() -> None:
    trainer = Trainer(module(), samples())
    before = trainer.tensors()
    assert "1.num_batches_tracked" not in before
    trainer.train(Recipe(), 1)
    trainer.load(before)
    after = trainer.tensors()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_model_with_other_names_or_shapes_is_refused_by_name() -> None:
    trainer = Trainer(torch.nn.Linear(4, 3), samples())
    with pytest.raises(WrongModel, match="differ in bias"):
        trainer.load({"weight": np.zeros((3, 4), np.float32)})
    with pytest.raises(WrongModel, match=r"weight has shape \[4, 3\] in the task, \[3, 4\]"):
        trainer.load({"weight": np.zeros((4, 3), np.float32), "bias": np.zeros(3, np.float32)})


def test_flat_parameters_go_out_and_in_unchanged() -> None:
    trainer = Trainer(module(), samples())
    vector = trainer.parameters()
    trainer.set_parameters(vector * 2)
    assert np.allclose(trainer.parameters(), vector * 2)
    with pytest.raises(ValueError, match="parameters"):
        trainer.set_parameters(vector[1:])


def test_clipped_gradients_of_all_samples_with_a_wide_bound_are_the_mean_gradient() -> None:
    """Σ_e g_e / n = ∇ mean loss, when no sample's gradient is clipped."""
    with seeded(1):
        model = torch.nn.Linear(4, 3)
    trainer = Trainer(model, samples())
    total = trainer.clipped_gradient_sum(np.arange(30), 1e6)
    assert np.allclose(total / 30, trainer.gradient(), atol=1e-6)
    one = trainer.clipped_gradient_sum(np.array([3]), 1e-3)
    assert np.linalg.norm(one) == pytest.approx(1e-3, rel=1e-4)


def test_datasets_loaders_and_tensors_are_all_samples() -> None:
    inputs, targets = samples()
    dataset = TensorDataset(inputs, targets)
    measured = [
        Trainer(module(), data).evaluate() for data in ((inputs, targets), dataset, DataLoader(dataset, batch_size=512))
    ]
    assert measured[0] == measured[1] == measured[2]
    assert 0 <= measured[0]["accuracy"] <= 1
    assert [Trainer(module(), data).samples for data in ((inputs, targets), dataset, DataLoader(dataset))] == [30] * 3


def test_a_regression_has_a_loss_but_no_accuracy() -> None:
    inputs = samples()[0]
    trainer = Trainer(torch.nn.Linear(4, 1), (inputs, inputs[:, :1]), loss=torch.nn.functional.mse_loss)
    assert set(trainer.evaluate()) == {"loss"}


def test_hints_that_make_no_sense_are_refused_and_the_plans_batch_size_wins() -> None:
    assert Recipe.of({"batch_size": 8, "colour": "red"}, 16).batch_size == 16
    with pytest.raises(WrongModel, match="training hints"):
        Recipe.of({"epochs": -1})

"""Regression with an own loss and own metrics, each with the way it gets better."""

from __future__ import annotations

import torch
from play import play
from sklearn.datasets import load_diabetes

from coterie import Metric, TorchLearner
from coterie.learning.training import model_bytes, seeded

DEVICES = 4


def network() -> torch.nn.Module:
    with seeded(0):
        return torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def r_squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return 1 - ((outputs - targets) ** 2).sum() / ((targets - targets.mean()) ** 2).sum()


def mean_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs - targets).abs().mean()


def learner(number: int, devices: int = DEVICES) -> TorchLearner:
    """Patients dealt out in turn; every fifth is held out for the figures."""
    inputs, targets = (torch.tensor(diabete, dtype=torch.float32) for diabete in load_diabetes(return_X_y=True))
    inputs, targets = inputs * 20, ((targets - 152) / 77)[:, None]
    held_out = torch.arange(len(inputs)) % 5 == 0
    own = ~held_out & (torch.arange(len(inputs)) % devices == number)
    return TorchLearner(
        network(),
        (inputs[own], targets[own]),
        test_data=(inputs[held_out], targets[held_out]),
        loss=torch.nn.functional.huber_loss,
        metrics={"r2": r_squared, "mean_error": Metric(mean_error, "down")},
    )


if __name__ == "__main__":
    training = {"epochs": 4, "batch_size": 16, "learning_rate": 0.1}
    play("regression", model_bytes(network()), [learner(item) for item in range(DEVICES)], rounds=4, training=training)

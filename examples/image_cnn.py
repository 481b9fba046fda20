"""A small convolutional network with batch normalisation on images, with an own optimiser and schedule.

Running statistics travel with the weights and are averaged as values.
"""

from __future__ import annotations

import torch
from play import play

from coterie import TorchLearner
from coterie.learning.training import model_bytes, seeded
from coterie.samples import digits

DEVICES = 3


def network() -> torch.nn.Module:
    with seeded(0):
        return torch.nn.Sequential(
            torch.nn.Unflatten(1, (1, 8, 8)),
            torch.nn.Conv2d(1, 8, 3, padding=1),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(8 * 4 * 4, 10),
        )


def learner(number: int, devices: int = DEVICES) -> TorchLearner:
    split = digits(devices)
    return TorchLearner(
        network(),
        split.shards[number],
        test_data=split.test,
        optimizer=lambda parameters, config: torch.optim.Adam(parameters, lr=config.learning_rate),
        schedule=lambda optimizer, steps: torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps),
    )


if __name__ == "__main__":
    training = {"epochs": 4, "batch_size": 32, "learning_rate": 0.01}
    play("image-cnn", model_bytes(network()), [learner(item) for item in range(DEVICES)], rounds=5, training=training)

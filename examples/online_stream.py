"""Data that arrives over time, in a mesh: 300 samples at first, 10 to 30 more each round, and the regret at the end."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from play import play

from coterie import TorchLearner
from coterie.learning.training import model_bytes, seeded

DEVICES, ROUNDS = 4, 6
Sample = tuple[torch.Tensor, torch.Tensor]


def network() -> torch.nn.Module:
    with seeded(0):
        return torch.nn.Linear(8, 3)


def arrive(draw: torch.Generator, count: int) -> list[Sample]:
    inputs = torch.randn(count, 8, generator=draw)
    noisy = inputs[:, :3] + torch.randn(count, 3, generator=draw)
    return list(zip(inputs, noisy.argmax(dim=1), strict=True))


def stream(number: int) -> Iterator[list[Sample]]:
    """What an agent takes over: samples there are at first, then after each round those that have come since."""
    draw, sizes = torch.Generator().manual_seed(number), random.Random(number)
    yield arrive(draw, 300)
    while True:
        yield arrive(draw, sizes.randint(10, 30))


if __name__ == "__main__":
    play(
        "stream",
        model_bytes(network()),
        [TorchLearner(network(), stream(item)) for item in range(DEVICES)],
        topology="mesh",
        privacy="none",
        incentive="none",
        rounds=ROUNDS,
        round_seconds=60.0,
        training={"learning_rate": 0.3},
    )

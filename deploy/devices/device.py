"""A demonstration device: trains on a third of scikit-learn's digits. `python device.py NUMBER`, 1 to 3."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

from coterie import Agent

DEVICES = 3
TASK = "digits"


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


def main() -> None:
    number = int(sys.argv[1])
    images, labels = load_digits(return_X_y=True)
    own = slice(number - 1, None, DEVICES)
    data = TensorDataset(torch.tensor(images[own] / 16.0, dtype=torch.float32), torch.tensor(labels[own]))
    agent = Agent.register(
        os.environ["COTERIE_URL"],
        Path("/tokens/token").read_text(),
        name=f"device-{number}",
        home="/data",
        model=make_model(),
        data=data,
    )
    agent.join(TASK)
    print(agent.run())


if __name__ == "__main__":
    main()

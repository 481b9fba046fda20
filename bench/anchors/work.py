"""The work that the lab's kernels and their anchors do: models and images. Imports torch and nothing of ours.

Random images, since speed does not depend on what they show; 50 examples a device, batches of 10, one epoch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

EXAMPLES, BATCH, RATE = 50, 10, 0.1
SHAPES: dict[str, tuple[int, ...]] = {"mlp": (784,), "small cnn": (1, 28, 28), "cnn": (3, 32, 32)}


def model(kind: str) -> nn.Sequential:
    """`mlp`: 4,780 parameters; `small cnn`: 20,522, on 28×28; `cnn`: 1.6 million, on 32×32 in colour."""
    torch.manual_seed(0)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(784, 6), nn.ReLU(), nn.Linear(6, 10))
    if kind == "small cnn":
        return nn.Sequential(
            nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4),
        nn.Flatten(), nn.Linear(64 * 64, 384), nn.ReLU(), nn.Linear(384, 10),
    )  # fmt: skip


def images(kind: str, devices: int) -> tuple[Any, Any, Any]:
    """5,000 images, their classes, and which of them each device has."""
    draw = torch.Generator().manual_seed(0)
    shown = torch.rand(5_000, *SHAPES[kind], generator=draw)
    shares = torch.randint(0, len(shown), (devices, EXAMPLES), generator=draw)
    return shown, torch.randint(0, 10, (len(shown),), generator=draw), shares

"""Devices that learn at once on uneven data; attacks and rules are measured on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.samples import dirichlet_shares
from coterie_lab.images import image_set

Matrix = NDArray[np.float64]
RADIUS = 0.4
"""Radius of centred clipping, chosen on seeds 11, 12 and 13, which no experiment uses."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Data and how devices train on it: `steps` local SGD steps on batches in each of `rounds` rounds."""

    name: str
    inputs: torch.Tensor
    labels: torch.Tensor
    test: tuple[torch.Tensor, torch.Tensor]
    hidden: int
    rounds: int
    radius: float
    steps: int = 5
    batch: int = 32
    rate: float = 0.1


def digits() -> Setting:
    """The 1,797 digits of scikit-learn, a fifth held out."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    inputs = torch.tensor(images[order] / 16.0, dtype=torch.float32)
    targets = torch.tensor(labels[order], dtype=torch.int64)
    held = len(labels) // 5
    return Setting(
        name="digits",
        inputs=inputs[held:],
        labels=targets[held:],
        test=(inputs[:held], targets[:held]),
        hidden=48,
        rounds=120,
        radius=RADIUS,
        rate=0.3,
    )


def fashion(folder: Path | None) -> Setting:
    """Fashion-MNIST: 12,000 training and 4,000 test images as means of 2 × 2 pixels."""
    images = image_set("Fashion-MNIST", folder, 12_000, 4_000)
    squares = [torch.nn.functional.avg_pool2d(pixels, 2).flatten(1) for pixels in (images.train, images.test)]
    middle, spread = squares[0].mean(), squares[0].std()
    inputs, test = ((item - middle) / spread for item in squares)
    return Setting(
        name="Fashion-MNIST",
        inputs=inputs,
        labels=images.train_labels,
        test=(test, images.test_labels),
        hidden=32,
        rounds=100,
        radius=RADIUS,
    )


class Crowd:
    """All devices at once: one stack of matrices holds their models, so a step is one batched product."""

    def __init__(self, setting: Setting, devices: int, seed: int) -> None:
        self.setting, self.devices = setting, devices
        rng = np.random.default_rng(seed)
        shares = dirichlet_shares(setting.labels.numpy(), devices, 0.5, rng)
        self._counts = torch.tensor([len(share) for share in shares])
        self._pool = torch.zeros((devices, int(self._counts.max())), dtype=torch.int64)
        for row, share in zip(self._pool, shares, strict=True):
            row[: len(share)] = torch.from_numpy(np.asarray(share))
        self._draw = torch.Generator().manual_seed(seed)
        width = setting.inputs.shape[1]
        self._shapes = [(width, setting.hidden), (setting.hidden,), (setting.hidden, 10), (10,)]
        start = torch.Generator().manual_seed(0)
        scaled = [torch.randn(shape, generator=start) * (2.0 / shape[0]) ** 0.5 for shape in self._shapes[::2]]
        first = [scaled[0], torch.zeros(setting.hidden), scaled[1], torch.zeros(10)]
        self.model = np.concatenate([item.numpy().ravel() for item in first]).astype(np.float64)

    def _split(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Split a stack of flat models into layers."""
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        pieces = torch.split(flat, sizes, dim=1)
        return [piece.reshape(-1, *shape) for piece, shape in zip(pieces, self._shapes, strict=True)]

    def changes(self, flip: range) -> Matrix:
        """Every device's change after its local steps; those in `flip` train on labels 9 − y."""
        setting = self.setting
        layers = [layer.clone() for layer in self._split(self._flat().repeat(self.devices, 1))]
        drawn = torch.rand((setting.steps, self.devices, setting.batch), generator=self._draw) * self._counts[:, None]
        for place in drawn.long():
            chosen = self._pool.gather(1, place)
            labels = setting.labels[chosen]
            labels[flip.start : flip.stop] = 9 - labels[flip.start : flip.stop]
            self._step(layers, setting.inputs[chosen], labels)
        return torch.cat([layer.flatten(1) for layer in layers], dim=1).numpy().astype(np.float64) - self.model

    def _step(self, layers: list[torch.Tensor], inputs: torch.Tensor, labels: torch.Tensor) -> None:
        """One step of every model down its own batch's mean cross-entropy, with the gradients written out."""
        w1, b1, w2, b2 = layers
        rate = self.setting.rate / self.setting.batch
        hidden = torch.baddbmm(b1[:, None], inputs, w1).relu_()
        wrong = torch.baddbmm(b2[:, None], hidden, w2).softmax(dim=2)
        wrong.scatter_add_(2, labels[:, :, None], torch.full((*labels.shape, 1), -1.0))
        behind = torch.bmm(wrong, w2.transpose(1, 2)) * (hidden > 0)
        w1.baddbmm_(inputs.transpose(1, 2), behind, alpha=-rate)
        b1.sub_(behind.sum(dim=1), alpha=rate)
        w2.baddbmm_(hidden.transpose(1, 2), wrong, alpha=-rate)
        b2.sub_(wrong.sum(dim=1), alpha=rate)

    def _flat(self) -> torch.Tensor:
        return torch.tensor(self.model, dtype=torch.float32)[None]

    def accuracy(self) -> float:
        """Share of test samples that the model classifies correctly."""
        inputs, labels = self.setting.test
        w1, b1, w2, b2 = self._split(self._flat())
        outputs = torch.relu(inputs @ w1[0] + b1[0]) @ w2[0] + b2[0]
        return float((outputs.argmax(dim=1) == labels).float().mean())

"""Many devices that learn at once, each on uneven data of its own: what attacks against rules are tried on."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.samples import dirichlet_shares

Matrix = NDArray[np.float64]
RADIUS = 0.4
"""Of centred clipping, chosen on seeds of its own."""
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts its files."""
TRAIN_SHA256 = "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"


@dataclass(frozen=True, slots=True)
class Setting:
    """Data and how devices train on it: local steps of SGD on batches, for so many rounds."""

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


def fashion(folder: Path | None) -> Setting | None:
    """Fashion-MNIST, 12,000 training images of it in squares of 2 × 2 pixels; None where its files are not."""
    for place in (folder, DEBIAN):
        if place is not None and (place / "train-images-idx3-ubyte.gz").exists():
            inputs, labels = _images(place, "train", 12_000)
            others, answers = _images(place, "t10k", 4_000)
            middle, spread = inputs.mean(), inputs.std()
            test = ((others - middle) / spread, answers)
            return Setting(
                name="Fashion-MNIST",
                inputs=(inputs - middle) / spread,
                labels=labels,
                test=test,
                hidden=32,
                rounds=100,
                radius=RADIUS,
            )
    return None


def _images(folder: Path, part: str, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
        read = file.read()
    if part == "train" and hashlib.sha256(read).hexdigest() != TRAIN_SHA256:
        raise SystemExit(f"{folder}/train-images-idx3-ubyte.gz is not Fashion-MNIST: its sum is another")
    pixels = np.frombuffer(read, np.uint8, offset=16).reshape(-1, 14, 2, 14, 2)[:most]
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)[:most]
    squares = pixels.mean(axis=(2, 4)).reshape(-1, 196)
    return torch.tensor(squares / 255.0, dtype=torch.float32), torch.tensor(labels.astype(np.int64))


class Crowd:
    """All devices at once: their models are one stack of matrices, so that a step is one product for all."""

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
        """Layers of a stack of flat models."""
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        pieces = torch.split(flat, sizes, dim=1)
        return [piece.reshape(-1, *shape) for piece, shape in zip(pieces, self._shapes, strict=True)]

    def changes(self, flip: range) -> Matrix:
        """Every device's change after its local steps; those in `flip` train on labels turned round."""
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
        """Share of test samples that the model gets right."""
        inputs, labels = self.setting.test
        w1, b1, w2, b2 = self._split(self._flat())
        outputs = torch.relu(inputs @ w1[0] + b1[0]) @ w2[0] + b2[0]
        return float((outputs.argmax(dim=1) == labels).float().mean())

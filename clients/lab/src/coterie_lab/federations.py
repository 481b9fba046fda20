"""Devices that learn one model together, simulated: who has which images, how they train, and how changes combine.

Devices train by the kernels of `coterie_lab.cohorts`. What leaves a device is made by the device's own code: clipped by
`coterie.privacy.clipping` and noised by the release of `coterie.privacy.releases`, by its exact sampler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from coterie.privacy.clipping import clip_update
from coterie.privacy.discrete import keep_tables
from coterie.privacy.releases import Change
from coterie.privacy.simulation import SeededStream
from coterie_lab.cohorts import Cohort, Kernel, Lesson, changes, kernel_for, parameters_of
from coterie_lab.images import ImageSet

Floats = NDArray[np.float64]
Combine = Callable[[int, Iterator[Tensor]], Tensor]
"""(round, every device's change in turn) → what is added to the model."""
CLASSES = 10
keep_tables(256)  # every device of a process has its own noise


def small_cnn(channels: int = 1, size: int = 28) -> nn.Sequential:
    """Four layers, two of them convolutions: 8,474 parameters on 28×28 grey images. Always the same beginning."""
    left = ((size - 3) // 2 - 3) // 2
    return _begun(
        nn.Conv2d(channels, 6, 5, stride=2), nn.ReLU(), nn.Conv2d(6, 12, 5, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(12 * left * left, 32), nn.ReLU(), nn.Linear(32, CLASSES),
    )  # fmt: skip


def colour_cnn() -> nn.Sequential:
    """Five layers, three of them convolutions: 12,266 parameters on 32×32 colour images. Always the same beginning."""
    return _begun(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, CLASSES),
    )  # fmt: skip


def _begun(*layers: nn.Module) -> nn.Sequential:
    """A network with He's first weights, with which a few rounds are enough to learn something."""
    draw = torch.Generator().manual_seed(0)
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=draw)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


def small_mlp(inputs: int, hidden: int = 32) -> nn.Sequential:
    """One hidden layer. Always the same beginning."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))


def dealt(images: ImageSet, non_iid: Floats | None, devices: int, random: np.random.Generator) -> Cohort:
    """Equally many images each, of classes drawn from a Dirichlet of the device's own γ; without γ, evenly at random.

    Who asks for more of a class than is left gets images that another has, too.
    """
    labels, size = images.train_labels.numpy(), len(images.train_labels) // devices
    if non_iid is None:
        shares = random.permutation(len(labels))[: devices * size].reshape(devices, size)
    else:
        stock = [random.permutation(np.flatnonzero(labels == label)) for label in range(CLASSES)]
        taken, rows = np.zeros(CLASSES, dtype=np.int64), []
        for gamma in non_iid:
            counts = random.multinomial(size, random.dirichlet(np.full(CLASSES, gamma)))
            picked = [own[(at + np.arange(n)) % len(own)] for own, at, n in zip(stock, taken, counts, strict=True)]
            rows.append(np.concatenate(picked))
            taken += counts
        shares = np.stack(rows)
    return Cohort(images.train, images.train_labels, torch.from_numpy(shares), torch.full((devices,), size))


@dataclass(frozen=True, slots=True)
class Score:
    """Of a model on the test images: share named rightly, and mean cross-entropy."""

    accuracy: float
    loss: float


@dataclass(frozen=True, slots=True, eq=False)
class Federation:
    """Devices with their images, a model and how all of them train it."""

    images: ImageSet
    cohort: Cohort
    module: nn.Module
    lesson: Lesson

    @property
    def kernel(self) -> Kernel:
        """How devices are trained."""
        return kernel_for(self.module)

    def learn(self, rounds: int, seed: int, combine: Combine) -> list[Score]:
        """How good the model is after each round. A diverged model has accuracy 0."""
        first, scores = parameters_of(self.module), []
        model = first
        for number in range(rounds):
            drawn = seed * 1_000 + number
            model = model + combine(
                number,
                changes(self.module, model, cohort=self.cohort, lesson=self.lesson, seed=drawn, kernel=self.kernel),
            )
            scores.append(self.score(model))
        nn.utils.vector_to_parameters(first, self.module.parameters())
        return scores

    def score(self, model: Tensor) -> Score:
        """Of one model."""
        if not torch.isfinite(model).all():
            return Score(0.0, float("inf"))
        with torch.no_grad():
            nn.utils.vector_to_parameters(model, self.module.parameters())
            scores = self.module(self.images.test)
            right = (scores.argmax(dim=1) == self.images.test_labels).float().mean()
            return Score(float(right), float(cross_entropy(scores, self.images.test_labels)))


def clear_mean(weights: Floats) -> Combine:
    """Changes as they are, weighed."""

    def combine(number: int, parts: Iterator[Tensor]) -> Tensor:
        return weighed_sum(weights, parts) / float(weights.sum())

    return combine


def weighed_sum(weights: Floats, parts: Iterator[Tensor]) -> Tensor:
    """Σ w·Δ over all devices, whose rows come a few at a time."""
    total, first = torch.zeros(()), 0
    for part in parts:
        total = total + torch.from_numpy(weights[first : first + len(part)]).to(part.dtype) @ part
        first += len(part)
    return total


def private_mean(noise: Floats, weights: Floats, clip_norm: float, seed: int) -> Combine:
    """Each change clipped and noised with its device's multiplier (0: clipped only), then weighed."""

    def hidden(number: int, parts: Iterator[Tensor]) -> Iterator[Tensor]:
        rows = (row for part in parts for row in part)
        for device, row in enumerate(rows):
            yield torch.from_numpy(released(row, clip_norm, float(noise[device]), seed, device, number))[None]

    def combine(number: int, parts: Iterator[Tensor]) -> Tensor:
        return weighed_sum(weights, hidden(number, parts)) / float(weights.sum())

    return combine


def released(change: Tensor, clip_norm: float, noise: float, *seeds: int) -> NDArray[np.float32]:
    """What leaves a device: its change clipped, with noise where some is due."""
    clipped = clip_update({"model": change.numpy()}, clip_norm).tensors
    if noise <= 0.0:
        return np.asarray(clipped["model"], dtype=np.float32)
    released = Change(clipped, clip_norm, noise).tensors(SeededStream("lab", *seeds))
    return np.asarray(released["model"], dtype=np.float32)

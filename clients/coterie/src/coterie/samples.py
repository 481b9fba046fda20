"""Data and models to try things with: scikit-learn's handwritten digits, dealt out unevenly. Needs scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import CoterieError

if TYPE_CHECKING:
    import torch

FEWEST_SAMPLES = 10


class BadSource(CoterieError):
    """A source of model and data that cannot be used."""


@dataclass(frozen=True, slots=True)
class Split:
    """Samples dealt to devices, and held-out ones; (inputs, targets) each."""

    shards: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    test: tuple[torch.Tensor, torch.Tensor]


def dirichlet_shares(
    labels: NDArray[np.integer[Any]], parts: int, concentration: float, random: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Indices of each part: every class is dealt by a Dirichlet draw, so that small `concentration` is uneven.

    A part that got fewer than `FEWEST_SAMPLES` (half its even share, where that is less) is given samples of the
    largest part, so that every part has samples.
    """
    if not 1 <= parts <= len(labels):
        raise ValueError(f"{len(labels)} samples cannot be dealt to {parts} parts; give 1 to {len(labels)}")
    chosen: list[list[int]] = [[] for _ in range(parts)]
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        cuts = (np.cumsum(random.dirichlet(np.full(parts, concentration)))[:-1] * len(members)).astype(int)
        for part, piece in zip(chosen, np.split(members, cuts), strict=True):
            part.extend(int(index) for index in piece)
    fewest = max(1, min(FEWEST_SAMPLES, len(labels) // (2 * parts)))
    for part in chosen:
        while len(part) < fewest:
            largest = max(chosen, key=len)
            part.append(largest.pop(int(random.integers(len(largest)))))
    return [np.array(sorted(part), dtype=np.int64) for part in chosen]


def digits(parts: int, *, seed: int = 0, concentration: float = 0.5) -> Split:
    """The 1,797 digits of 8 × 8 pixels: a fifth held out, the rest dealt to `parts` devices."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise BadSource("the digits come with scikit-learn: pip install 'coterie[demo]'") from error
    import torch

    images, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(seed)
    order = random.permutation(len(labels))
    held_out, rest = order[: len(labels) // 5], order[len(labels) // 5 :]
    inputs, targets = torch.from_numpy((images / 16.0).astype(np.float32)), torch.from_numpy(labels.astype(np.int64))
    shares = dirichlet_shares(labels[rest], parts, concentration, random)
    shards = tuple((inputs[rest[share]], targets[rest[share]]) for share in shares)
    return Split(shards, (inputs[held_out], targets[held_out]))


def digits_model(seed: int = 0) -> torch.nn.Module:
    """A small network for the digits: 64 → 48 → 10."""
    import torch

    from coterie.learning.training import seeded

    with seeded(seed):
        return torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))

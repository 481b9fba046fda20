"""Nine attacks on a round by devices that lie together and know the honest updates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coterie_lab.crowd import Crowd, Matrix

Attack = Callable[[Matrix, Matrix, np.random.Generator], Matrix]
"""(honest updates, the liars' own honest updates, randomness) → updates that the liars send."""


def _noise(length: float, like: Matrix, rng: np.random.Generator) -> Matrix:
    drawn = rng.normal(size=like.shape)
    return np.asarray(length * drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def _norm(honest: Matrix) -> float:
    return float(np.median(np.linalg.norm(honest, axis=1)))


ATTACKS: dict[str, Attack] = {
    "sign flip": lambda honest, own, rng: np.repeat(-honest.mean(axis=0, keepdims=True), len(own), 0),
    "inner product": lambda honest, own, rng: np.repeat(-0.5 * honest.mean(axis=0, keepdims=True), len(own), 0),
    "a little is enough": lambda honest, own, rng: np.repeat(
        (honest.mean(axis=0) - 1.5 * honest.std(axis=0))[None], len(own), 0
    ),
    "mimic": lambda honest, own, rng: np.repeat(honest[:1], len(own), 0),
    "label flip": lambda honest, own, rng: own,
    "Gaussian": lambda honest, own, rng: _noise(10.0 * _norm(honest), own, rng),
    "zero": lambda honest, own, rng: np.zeros_like(own),
    "scaled": lambda honest, own, rng: 10.0 * own,
    "random": lambda honest, own, rng: _noise(_norm(honest), own, rng),
}
NO_ATTACK = "no attack"


def is_lost(updates: Matrix) -> bool:
    """Whether training diverged, which counts as accuracy 0."""
    return not np.abs(updates).max() < 1e30


def lied(crowd: Crowd, attack: str, liars: int, rng: np.random.Generator) -> Matrix:
    """Return a round's updates; the last `liars` of them are lies."""
    honest = crowd.devices - liars
    updates = crowd.changes(range(honest, crowd.devices) if attack == "label flip" else range(0))
    if liars:
        updates[honest:] = ATTACKS[attack](updates[:honest], updates[honest:], rng)
    return updates

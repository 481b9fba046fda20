"""Checks by which a cluster's head finds damaged updates and free riders.

A head refuses an update that does not fit the model, is not finite or is larger than clipping allows; one that is zero
beside the others; and one that points where another update, or the last change of the model, already pointed. Pure
noise shows over rounds. For x isotropic and independent of a direction r, √d·cos(x, r) has mean 0 and variance 1, so
over T rounds

    z = Σ √d·cos(x_t, r_t) / √T

stays within ±3 but for one case in 370. A device that learns anything is drawn towards the others or towards where the
model has been going: with true cosine c to either and noise multiplier σ it has z ≈ c√T/√(σ² + 1/d). A member is
called noise only when both z are below 3 although c = 0.2 would have made them 6 on average, that is after

    T ≥ (30²)(σ² + 1/d) rounds, and three at least,

which an honest device with c ≥ 0.2 fails once in 740 times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.agent.report import Tensors

Flat: TypeAlias = NDArray[np.float64]

COPIED_COSINE = 0.999
ZERO_SHARE = 1e-6
LONG_TIMES = 10.0
NOISE_SCORE = 3.0
EXPECTED_SCORE = 6.0
EXPECTED_COSINE = 0.2
FEWEST_ROUNDS = 3
_SMALLEST_FOR_ANGLES = 16
"""Below this many parameters angles say little: only equal updates count as copies."""


@dataclass(frozen=True, slots=True)
class Tally:
    """A member's Σ√d·cos against the others (`with_others`) and against the last move, over `rounds` and `moves`."""

    rounds: int = 0
    with_others: float = 0.0
    moves: int = 0
    with_move: float = 0.0

    def plus(self, update: Flat, others: Flat, move: Flat | None) -> Tally:
        """One round more."""
        scale = math.sqrt(update.size)
        moved = move is not None and bool(np.any(move))
        return Tally(
            self.rounds + 1,
            self.with_others + scale * cosine(update, others),
            self.moves + moved,
            self.with_move + (scale * cosine(update, move) if moved and move is not None else 0.0),
        )

    def score(self) -> float:
        """The larger z of both directions."""
        scores = [self.with_others / math.sqrt(self.rounds)] if self.rounds else [0.0]
        return max(scores + ([self.with_move / math.sqrt(self.moves)] if self.moves else []))

    def is_noise(self, noise_multiplier: float, size: int) -> bool:
        """Whether this many rounds of this noise would have shown learning, and did not."""
        spread = noise_multiplier**2 + 1.0 / size
        needed = max(FEWEST_ROUNDS, math.ceil((EXPECTED_SCORE / EXPECTED_COSINE) ** 2 * spread))
        return self.rounds >= needed and self.score() < NOISE_SCORE


def flatten(tensors: Tensors) -> Flat:
    """All entries in one vector, tensors in order of name."""
    return np.concatenate([np.ravel(tensors[name]).astype(np.float64) for name in sorted(tensors)])


def cosine(a: Flat, b: Flat) -> float:
    """Cosine of the angle between two vectors; 0 when one of them is zero."""
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length > 0.0 else 0.0


def misfit(tensors: Mapping[str, NDArray[Any]], model: Tensors) -> str:
    """Why tensors are no change of this model; empty when they are."""
    if tensors.keys() != model.keys():
        odd = sorted(tensors.keys() ^ model.keys())[0]
        return f"its update has other tensors than the model, {odd!r} for one"
    for name, value in tensors.items():
        if value.shape != model[name].shape or value.dtype != model[name].dtype:
            return f"its {name!r} is {value.dtype}{list(value.shape)}, not {model[name].dtype}{list(model[name].shape)}"
        if not bool(np.isfinite(value).all()):
            return f"its {name!r} holds values that are not finite"
    return ""


def largest_norm(bound: float, noise_multiplier: float, size: int) -> float:
    """Norm that an update clipped to `bound` and noised stays below: six deviations above the expected length."""
    return bound * (1.0 + 1e-3 + noise_multiplier * (math.sqrt(size) + 6.0))


def implied_noise(update: Flat, bound: float) -> float:
    """Noise multiplier an update clipped to `bound` shows by its length, ‖x‖² ≈ bound²(1 + σ²d)."""
    return math.sqrt(max(0.0, (float(update @ update) / bound**2 - 1.0) / update.size))


def zero(update: Flat, others: list[Flat]) -> str:
    """Why an update counts as none: it is (next to) zero where the others are not."""
    usual = float(np.median([np.linalg.norm(other) for other in others])) if others else 0.0
    return "its update is zero" if usual > 0.0 and np.linalg.norm(update) <= ZERO_SHARE * usual else ""


def long(update: Flat, others: list[Flat]) -> str:
    """Explain why an unclipped update is too long: the platform would refuse the whole cluster's sum for it."""
    norm = float(np.linalg.norm(update))
    usual = float(np.median([norm, *(np.linalg.norm(other) for other in others)]))
    return f"its update has norm {norm:.4g}, {usual:.4g} is usual" if norm > LONG_TIMES * usual > 0.0 else ""


def copied(update: Flat, known: Mapping[str, Flat]) -> str:
    """Name the update that this one copies, scaled or not; empty if it is original."""
    for name, other in known.items():
        same = bool(np.any(other)) and bool(np.array_equal(update, other))
        if same or (update.size >= _SMALLEST_FOR_ANGLES and cosine(update, other) >= COPIED_COSINE):
            return f"its update is a copy of {name}"
    return ""

"""Which of K models a device belongs to, decided on the device from its own data. [DPVD]

A device scores model k by its loss and by whether its descent direction agrees with the model's last move:

    S_k = cos(−∇L(w_k), w_k(t) − w_k(t−1)),      identity = argmax_k  λ S_k − (1 − λ) L_k

S_k is 0 where either vector is 0, so in the first round the loss alone decides. Unlike [DPVD] as summarised, the
sign is that of *descent*: with the gradient's own sign the rule prefers the models a device would undo.

Unlike [DPVD], a device draws its first choices among the models that are nearly as good as the best. Before anything is
learned a loss tells how a model was drawn: where one random start is a little better for all devices, all take it, and
a model without devices never learns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

MARGIN = 0.1
"""A model whose score leads by this much need not be compared with another; within it, models are near-equal."""
DRAWN = 3
"""Choices that a device makes first, and draws where models are near-equal."""
LOOK_AGAIN = 5
"""Rounds after which a settled device compares all models again."""
RISE = 1.05
"""A loss this many times the last one has risen."""
TIE = 1e-12
"""Scores closer than this, relative to the terms they are made of, are equal; the lowest model number wins."""


def alignment(gradient: ArrayLike, move: ArrayLike) -> float:
    """S = cos(−gradient, move) in [−1, 1]; 0 if either vector is 0.

    gradient: ∇L(w_k) on this device's data.  move: w_k(t) − w_k(t−1), same shape.
    """
    descent, step = -np.ravel(np.asarray(gradient, dtype=float)), np.ravel(np.asarray(move, dtype=float))
    if descent.shape != step.shape:
        raise ValueError(f"a gradient of {descent.size} numbers cannot be compared with a move of {step.size}")
    if not (np.isfinite(descent).all() and np.isfinite(step).all()):
        raise ValueError("the gradient or the move holds NaN or infinity; check the device's data and the model")
    # Dividing by the largest entry first keeps the squares from overflowing or vanishing.
    sizes = np.abs(descent).max(initial=0.0), np.abs(step).max(initial=0.0)
    if sizes[0] == 0 or sizes[1] == 0:
        return 0.0
    descent, step = descent / sizes[0], step / sizes[1]
    cosine = float(descent @ step) / float(np.linalg.norm(descent) * np.linalg.norm(step))
    return min(1.0, max(-1.0, cosine))


def scores(loss: ArrayLike, similarity: ArrayLike | None, weight: float, *, relative_loss: bool = False) -> Floats:
    """λ S − (1 − λ) L for each device and model.

    loss: L, shape (..., K), +inf for a model that cannot be evaluated.  similarity: S in [−1, 1], same shape; None in
    the first round.  weight: λ in [0, 1].  relative_loss: divide each device's losses by their mean first, which makes
    λ mean the same whatever the loss's unit.
    """
    losses, cosines = _checked(loss, similarity, weight)
    if relative_loss:
        mean = np.mean(losses, axis=-1, keepdims=True, where=np.isfinite(losses)) if losses.size else losses
        losses = losses / np.where(np.isfinite(mean) & (mean > 0), mean, 1.0)
    # λ = 1 ignores the loss altogether, even an infinite one.
    penalty = (1.0 - weight) * losses if weight < 1 else np.zeros_like(losses)
    return weight * cosines - penalty


def choose(
    loss: ArrayLike, similarity: ArrayLike | None, weight: float, *, relative_loss: bool = False
) -> NDArray[np.int64]:
    """The model of each device: argmax_k λ S − (1 − λ) L, ties to the lowest k. Shapes as in `scores`."""
    value = scores(loss, similarity, weight, relative_loss=relative_loss)
    if value.shape[-1] == 0:
        raise ValueError("no model to choose from; give at least one loss per device")
    best = value.max(axis=-1, keepdims=True, initial=-np.inf)
    scale = 1.0 + np.abs(np.where(np.isfinite(best), best, 0.0))
    close = (value >= best - TIE * scale) | (value == best)
    first: NDArray[np.int64] = np.argmax(close, axis=-1).astype(np.int64)
    return first


def near_equal(value: Floats) -> NDArray[np.int64]:
    """The models of one device, growing, whose score lies less than MARGIN below the best; the best always does."""
    best = value.max(initial=-np.inf)
    return np.flatnonzero((value > best - MARGIN) | (value == best))


def likely_models(
    history: Sequence[int],
    models: int,
    *,
    settle_after: int = 3,
    margins: Sequence[float] = (),
    losses: Sequence[float] = (),
) -> tuple[int, ...]:
    """The models a device still needs to download, given its past identities (oldest first).

    Until its last `settle_after` choices agree a device compares all `models`. Then it compares its own with one other:
    the one it chose before or, where it never chose another, each of them in turn. It stops that only while its model
    led by MARGIN in its last `settle_after` comparisons. Every LOOK_AGAIN rounds, and when its loss has risen, it
    compares all again: no settlement is for ever.

    margins: by how much the chosen model's score led in each past round, NaN where it was compared with none.
    losses: of the chosen model in each past round. Both as long as `history`, or empty when nothing is known.
    """
    if models < 1:
        raise ValueError(f"{models} models; a multi-task device needs at least one")
    if any(not 0 <= k < models for k in history):
        raise ValueError(f"the identity history {list(history)} names a model outside 0..{models - 1}")
    own = history[-1] if history else 0
    run = next((place for place, k in enumerate(reversed(history)) if k != own), len(history))
    settled = run - settle_after
    is_due = settled > 0 and settled % LOOK_AGAIN == 0
    if settled < 0 or is_due or _has_risen(losses[-run:]):
        return tuple(range(models))
    led = [margin for margin in margins[-run:] if not math.isnan(margin)][-settle_after:]
    if models == 1 or (len(led) == settle_after and min(led) >= MARGIN):
        return (own,)
    before = [k for k in history if k != own]
    other = before[-1] if before else (own + 1 + settled % (models - 1)) % models
    return tuple(sorted((own, other)))


def lead(value: Floats) -> float:
    """By how much the best of a device's scores leads the second; NaN where there is none to lead."""
    best = np.sort(value)[::-1]
    return float(best[0] - best[1]) if len(best) > 1 and np.isfinite(best[0]) else math.nan


def _has_risen(losses: Sequence[float]) -> bool:
    return len(losses) > 1 and losses[-1] > RISE * losses[-2]


def _checked(loss: ArrayLike, similarity: ArrayLike | None, weight: float) -> tuple[Floats, Floats]:
    losses = np.asarray(loss, dtype=float)
    cosines = np.zeros_like(losses) if similarity is None else np.asarray(similarity, dtype=float)
    if losses.ndim == 0:
        raise ValueError("loss must be a list with one number per model")
    if losses.shape != cosines.shape:
        raise ValueError(f"loss has shape {losses.shape} and similarity {cosines.shape}; they must match")
    if np.isnan(losses).any() or np.isneginf(losses).any():
        raise ValueError("a loss is NaN or -inf; a model without a usable loss counts as +inf")
    if np.isnan(cosines).any() or (np.abs(cosines) > 1 + 1e-9).any():
        raise ValueError("a similarity lies outside [-1, 1]; it is a cosine")
    if not 0 <= weight <= 1:
        raise ValueError(f"weight is {weight}; give λ in [0, 1]")
    return losses, cosines

"""One round of a mesh on one device: noise what leaves, mix what arrives, take the step.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, (3), (18) and (19).

Parameters and gradients are flat float vectors, whatever model they come from. The order of a round is

    y = what the neighbours get      x, noisy on a DP device
    g = a mean gradient over this round's batch, taken at y
    state = step(state, y, received, …)

The device's own term uses y as well, noise included. So, given everything sent before, what is sent next depends on
the data only through the last step, and that is what the clipped scale protects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]
Sensitivity = Literal["clipped", "paper"]


@dataclass(frozen=True, slots=True, eq=False)
class MeshState:
    """What a device carries from round to round.

    Attributes
    ----------
    parameters : x_i, flat.
    gradient : g_i of the last round, flat; zero before the first.
    step_size : η the last step was taken with; 0 before the first.
    batch_size : samples the last gradient was the mean of.
    """

    parameters: Vector
    gradient: Vector
    step_size: float = 0.0
    batch_size: int = 0

    @classmethod
    def start(cls, parameters: ArrayLike) -> MeshState:
        """A device that has not stepped yet and so has nothing to hide."""
        vector = np.array(parameters, dtype=np.float64).ravel()
        return cls(vector, np.zeros_like(vector))


def step_size(round_number: int, *, initial: float = 0.01, decay: float = 0.99) -> float:
    """η_t = initial · decay^t."""
    if round_number < 0:
        raise ValueError(f"round {round_number} is negative; rounds count from 0")
    return float(initial * decay**round_number)


def paper_scale(step: float, previous_gradient: Vector, epsilon: float) -> float:
    """σ = 2 η_t ‖g^{t−1}‖₁ / ε, the paper's Laplace scale.

    It depends on the data and proves no differential privacy; it is here to reproduce [BETTA].
    """
    _require_budget(epsilon)
    return float(2.0 * step * np.abs(previous_gradient).sum() / epsilon)


def clipped_scale(previous_step: float, clip: float, batch_size: int, epsilon: float) -> float:
    """Δ/ε with Δ = 2 η_{t−1} C / B: replacing one sample moves the last step by at most Δ in ‖·‖₁.

    Unlike [BETTA], this is ε-differentially private per round: each sample's gradient has ‖·‖₁ ≤ C. T rounds compose to
    Tε. With a projection onto a ball the ℓ₁ bound no longer holds; `step` refuses the two together.
    """
    _require_budget(epsilon)
    if not clip > 0:
        raise ValueError(f"clip is {clip}; the largest ‖·‖₁ of a sample's gradient is above 0")
    if previous_step == 0.0:
        return 0.0
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; the last gradient was the mean of at least one sample")
    return float(2.0 * previous_step * clip / (batch_size * epsilon))


def noise_scale(
    state: MeshState, step: float, epsilon: float, *, sensitivity: Sensitivity = "clipped", clip: float | None = None
) -> float:
    """The Laplace scale a DP device uses this round; 0 in its first."""
    if sensitivity == "paper":
        return paper_scale(step, state.gradient, epsilon)
    if clip is None:
        raise ValueError("the clipped sensitivity needs clip, the ‖·‖₁ every sample's gradient was clipped to")
    return clipped_scale(state.step_size, clip, state.batch_size, epsilon)


def mix(own: Vector, received: Mapping[int, Vector], weights: Mapping[int, float]) -> Vector:
    """Σ_j a_ij y_j over the planned neighbours; the weight of one who sent nothing returns to the device itself.

    Parameters
    ----------
    own : y_i.
    received : y_j by neighbour; only planned neighbours may be in it.
    weights : a_ij by planned neighbour, without the device itself; their sum is at most 1.
    """
    strangers = set(received) - set(weights)
    if strangers:
        raise ValueError(f"parameters came from {sorted(strangers)}, who are not neighbours in the plan; drop them")
    if any(weight < 0 for weight in weights.values()) or sum(weights.values()) > 1.0 + 1e-9:
        raise ValueError(f"mixing weights {dict(weights)} must be at least 0 and sum to at most 1")
    mixed = (1.0 - sum(weights[neighbour] for neighbour in received)) * own
    for neighbour in sorted(received):
        if received[neighbour].shape != own.shape:
            raise ValueError(f"neighbour {neighbour} sent {received[neighbour].shape} parameters, not {own.shape}")
        mixed = mixed + weights[neighbour] * received[neighbour]
    return mixed


def project(parameters: Vector, radius: float | None) -> Vector:
    """The nearest point of the Euclidean ball of that radius; None means no constraint."""
    if radius is None:
        return parameters
    if not radius > 0:
        raise ValueError(f"radius is {radius}; a ball has a radius above 0")
    norm = float(np.linalg.norm(parameters))
    return parameters if norm <= radius else parameters * (radius / norm)


def step(
    state: MeshState,
    own: Vector,
    received: Mapping[int, Vector],
    weights: Mapping[int, float],
    gradient: Vector,
    batch_size: int,
    step: float,
    *,
    radius: float | None = None,
    provably_private: bool = False,
) -> MeshState:
    """x_i ← Proj(Σ_j a_ij y_j − η_t g_i), [BETTA] (18)."""
    if provably_private and radius is not None:
        raise ValueError("a projection breaks the ℓ₁ bound of the clipped sensitivity; leave radius out")
    if gradient.shape != state.parameters.shape or not np.isfinite(gradient).all():
        raise ValueError(f"the gradient has shape {gradient.shape} or is not finite; expected {state.parameters.shape}")
    moved = project(mix(own, received, weights) - step * gradient, radius)
    return MeshState(moved, gradient, step, batch_size)


def clip_samples(gradients: Vector, clip: float) -> Vector:
    """Each row scaled to ‖·‖₁ ≤ clip; (B, d) in and out."""
    norms = np.abs(gradients).sum(axis=1, keepdims=True)
    return np.asarray(gradients * (clip / np.maximum(norms, clip)), dtype=np.float64)


def softmax_gradient(
    parameters: Vector, samples: Vector, labels: NDArray[np.int64], classes: int, *, clip: float | None = None
) -> Vector:
    """Mean gradient of the cross entropy of a linear model with `classes` rows, flat.

    A sample's gradient is (p − e_y) sᵀ, so its ‖·‖₁ is ‖p − e_y‖₁ ‖s‖₁ and clipping needs no (B, d) array.
    """
    scores = samples @ parameters.reshape(classes, -1).T
    scores -= scores.max(axis=1, keepdims=True)
    residual = np.exp(scores)
    residual /= residual.sum(axis=1, keepdims=True)
    residual[np.arange(len(labels)), labels] -= 1.0
    if clip is not None:
        norms = np.abs(residual).sum(axis=1) * np.abs(samples).sum(axis=1)
        residual *= (clip / np.maximum(norms, clip))[:, None]
    return np.asarray((residual.T @ samples).ravel() / len(labels), dtype=np.float64)


def _require_budget(epsilon: float) -> None:
    if not (np.isfinite(epsilon) and epsilon > 0):
        raise ValueError(f"epsilon is {epsilon}; a privacy budget is a finite number above 0")

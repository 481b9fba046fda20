"""A model of plain arrays as a `Learner`, for devices without torch: the author provides the loss and its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.agent.report import Tensors
from coterie.errors import WrongModel
from coterie.learning.learner import Indices
from coterie.learning.metrics import Better, Metric, metric_of
from coterie.learning.training_config import Instructions
from coterie.privacy.clipping import Norm

Arrays: TypeAlias = dict[str, NDArray[np.floating[Any]]]
Data: TypeAlias = Callable[[], tuple[NDArray[Any], NDArray[Any]]] | tuple[NDArray[Any], NDArray[Any]]
"""Inputs and targets by sample, or a function that gives those there are now."""
Losses: TypeAlias = Callable[[Arrays, NDArray[Any], NDArray[Any]], NDArray[np.floating[Any]]]
"""Each sample's loss, shape (samples,), of (parameters, inputs, targets)."""
PerSample: TypeAlias = Callable[[Arrays, NDArray[Any], NDArray[Any]], Arrays]
"""Each sample's gradient by name, shape (samples, *shape of the parameter)."""


class NumpyLearner:
    """Named arrays with the device's data: plain gradient descent on the author's gradients."""

    def __init__(
        self,
        parameters: Tensors,
        data: Data,
        *,
        losses: Losses,
        gradients: PerSample,
        test_data: Data | None = None,
        metrics: Mapping[str, Metric | Callable[[Arrays, NDArray[Any], NDArray[Any]], float]] | None = None,
    ) -> None:
        """
        Args:
            parameters: the model by name; each round's model overwrites it.
            data: inputs and targets, one row per sample; a function of none for data that grows.
            losses: each sample's loss.
            gradients: each sample's gradient, by the parameters' names.
            test_data: samples for the figures; the training samples when left out.
            metrics: by name, figures of (parameters, inputs, targets) beside the loss.
        """
        self._parameters: Arrays = {name: np.array(value) for name, value in parameters.items()}
        self._data, self._test = data, data if test_data is None else test_data
        self._losses, self._gradients = losses, gradients
        self._metrics = {name: metric_of(name, item) for name, item in (metrics or {}).items()}

    @property
    def samples(self) -> int:
        """Training samples now."""
        return len(_now(self._data)[0])

    @property
    def better(self) -> dict[str, Better]:
        """Which way each figure gets better."""
        return {"loss": "down", **{name: metric.better for name, metric in self._metrics.items()}}

    def parameters(self) -> Arrays:
        """The model, copied."""
        return {name: value.copy() for name, value in self._parameters.items()}

    def load(self, tensors: Tensors) -> None:
        """Overwrites the model; raises `WrongModel` unless names and shapes fit."""
        if tensors.keys() != self._parameters.keys():
            odd = sorted(tensors.keys() ^ self._parameters.keys())[:3]
            raise WrongModel(f"the task's model and this learner differ in {', '.join(odd)}")
        for name, value in self._parameters.items():
            if tensors[name].shape != value.shape:
                raise WrongModel(f"{name} has shape {list(tensors[name].shape)} in the task, {list(value.shape)} here")
        self._parameters = {name: np.array(tensors[name], dtype=v.dtype) for name, v in self._parameters.items()}

    def train(self, instructions: Instructions, seed: int) -> None:
        """Descent over the samples in an order drawn from `seed`, as `TorchLearner` does it."""
        inputs, targets = _now(self._data)
        random, origins = np.random.default_rng(seed), self.parameters()
        velocities = {name: np.zeros_like(value) for name, value in self._parameters.items()}
        for _ in range(instructions.epochs):
            order = random.permutation(len(inputs))
            for start in range(0, len(order), instructions.batch_size):
                batch = order[start : start + instructions.batch_size]
                result = self._gradients(self._parameters, inputs[batch], targets[batch])
                for name, value in self._parameters.items():
                    pull = instructions.proximal * (value - origins[name]) + instructions.weight_decay * value
                    velocities[name] = instructions.momentum * velocities[name] + result[name].mean(axis=0) + pull
                    self._parameters[name] = value - np.asarray(
                        instructions.learning_rate * velocities[name], dtype=value.dtype
                    )

    def evaluate(self) -> dict[str, float]:
        """How many test samples, their mean loss, and the metrics."""
        inputs, targets = _now(self._test)
        if not len(inputs):
            return {}
        figures = {"samples": float(len(inputs))}
        figures |= {"loss": float(np.mean(self._losses(self._parameters, inputs, targets)))}
        figures |= {name: float(m.function(self._parameters, inputs, targets)) for name, m in self._metrics.items()}
        return {name: value for name, value in figures.items() if math.isfinite(value)}

    # --- gradients ---------------------------------------------------------------------------------------------------

    def trained(self) -> tuple[str, ...]:
        """Every parameter, in the order given."""
        return tuple(self._parameters)

    def loss_of(self, indices: Indices) -> float:
        """Mean loss of some training samples."""
        inputs, targets = _now(self._data)
        return float(np.mean(self._losses(self._parameters, inputs[indices], targets[indices])))

    def gradient_sum(self, indices: Indices, bound: float, norm: Norm = "l2") -> Arrays:
        """Sum of the samples' own gradients, each clipped to a norm of `bound`; an infinite one leaves them be.

        With a bound, a gradient that is not finite counts as zeros: refusing to go on would tell of its sample.
        """
        inputs, targets = _now(self._data)
        result = self._gradients(self._parameters, inputs[indices], targets[indices])
        flat = np.concatenate([result[name].reshape(len(indices), -1) for name in self._parameters], axis=1)
        norms = np.linalg.norm(flat.astype(np.float64), 1 if norm == "l1" else 2, axis=1)
        if math.isinf(bound):
            return {name: np.sum(result[name], axis=0) for name in self._parameters}
        sound = np.isfinite(norms)
        factors = bound / np.maximum(norms[sound], bound)
        return {name: np.tensordot(factors, result[name][sound], axes=1) for name in self._parameters}


def _now(data: Data) -> tuple[NDArray[Any], NDArray[Any]]:
    return data() if callable(data) else data

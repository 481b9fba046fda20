"""A torch module with a device's data as a `Learner`; loss, metrics, optimiser, schedule and loop can be replaced.

Training is seeded: the same seed, data and model give the same bits, because torch's global generator is set and
restored under one lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.agent.report import Tensors
from coterie.errors import BadLearner, WrongModel
from coterie.learning.batches import (
    Arriving,
    Samples,
    chosen,
    count,
    in_order,
    joined,
    moved,
    outputs_of,
    shuffled,
    size_of,
    split,
    steps_of,
)
from coterie.learning.learner import Indices
from coterie.learning.metrics import Better, Metric, metric_of
from coterie.learning.training import Exchange, arrays_of, names_that_travel, one_at_a_time, seeded
from coterie.learning.training_config import Instructions
from coterie.privacy.clipping import Norm, clipped_gradients

Loss: TypeAlias = Callable[[Any, Any], torch.Tensor]
OptimizerFactory: TypeAlias = "Callable[[list[torch.nn.Parameter], Instructions], torch.optim.Optimizer]"
ScheduleFactory: TypeAlias = "Callable[[torch.optim.Optimizer, int], torch.optim.lr_scheduler.LRScheduler]"
Step: TypeAlias = Callable[[torch.nn.Module, Samples, Instructions], None]


class TorchLearner:
    """A torch module with the device's data: load a model, train it, measure it, see its gradients."""

    def __init__(
        self,
        module: torch.nn.Module,
        data: Samples,
        *,
        test_data: Samples | None = None,
        loss: Loss | None = None,
        metrics: Mapping[str, Metric | Callable[[Any, Any], Any]] | None = None,
        optimizer: OptimizerFactory | None = None,
        schedule: ScheduleFactory | None = None,
        step: Step | None = None,
        device: str | torch.device = "auto",
        exchange: Exchange = "all",
    ) -> None:
        """
        Args:
            module: what is trained; what travels of its state is overwritten by each round's model.
            data: training samples: a dataset or list of samples, a loader, or a tuple or dict of stacked tensors. It
                may grow or shrink between rounds. An iterator gives those there are at first, then those that have come
                since the round before.
            test_data: samples for the metrics; the training samples when left out.
            loss: mean loss of (outputs, targets); cross entropy when left out.
            metrics: by name, functions of (outputs, targets) of all test samples at once; the share of right classes
                when left out and targets are classes.
            optimizer: makes an optimiser of (parameters, instructions); plain descent when left out.
            schedule: makes a schedule of (optimizer, steps in all), stepped after each batch.
            step: does a round's whole training instead, given (module, data, instructions); torch is seeded.
            device: "cpu", "cuda", "mps", or "auto" for the best there is.
            exchange: what travels: "all", "trainable", "adapters", or patterns of names; the rest stays at home.
        """
        self.device = _device(device)
        data = Arriving(data) if isinstance(data, Iterator) else data
        self.module, self._data, self._test = module.to(self.device), data, data if test_data is None else test_data
        self._loss: Loss = loss or torch.nn.functional.cross_entropy
        self._metrics = None if metrics is None else {name: metric_of(name, m) for name, m in metrics.items()}
        self._optimizer, self._schedule, self._step = optimizer, schedule, step
        self._names = names_that_travel(module, exchange)

    @property
    def samples(self) -> int:
        """Training samples now."""
        return count(self._data)

    def arrive(self) -> None:
        """Takes over what the iterator of samples has to give since the round before."""
        if isinstance(self._data, Arriving):
            self._data.arrive()

    @property
    def better(self) -> dict[str, Better]:
        """Which way each figure gets better."""
        own = {"accuracy": Metric(_right_share)} if self._metrics is None else self._metrics
        return {"loss": "down", **{name: metric.better for name, metric in own.items()}}

    # --- the model as arrays -----------------------------------------------------------------------------------------

    def parameters(self) -> dict[str, NDArray[np.floating[Any]]]:
        """What travels of the module's state, copied."""
        return arrays_of(self.module, self._names)

    def load(self, tensors: Tensors) -> None:
        """Overwrites what travels; raises `WrongModel` unless names and shapes fit."""
        if set(self._names) != tensors.keys():
            odd = sorted(set(self._names) ^ tensors.keys())[:3]
            raise WrongModel(
                f"the task's model and this module differ in {', '.join(odd)}; give the module it is for, or say what "
                "travels of it with exchange="
            )
        state = self.module.state_dict()
        with torch.no_grad():
            for name in self._names:
                given, value = tensors[name], state[name]
                if tuple(value.shape) != given.shape:
                    raise WrongModel(f"{name} has shape {list(given.shape)} in the task, {list(value.shape)} here")
                value.copy_(torch.from_numpy(np.ascontiguousarray(given)))

    # --- training ----------------------------------------------------------------------------------------------------

    def train(self, instructions: Instructions, seed: int) -> None:
        """Descent over the device's samples, in an order drawn from `seed`; or the author's own step."""
        with seeded(seed):
            self.module.train()
            if self._step is not None:
                self._step(self.module, self._data, instructions)
            elif self._optimizer is None and self._schedule is None:
                self._descend(instructions)
            else:
                self._optimise(instructions)

    def _descend(self, instructions: Instructions) -> None:
        parameters = self._trainable()
        velocities = [torch.zeros_like(parameter) for parameter in parameters]
        origins = [parameter.detach().clone() for parameter in parameters] if instructions.proximal else ()
        for _ in range(instructions.epochs):
            for batch in shuffled(self._data, instructions.batch_size):
                gradients = torch.autograd.grad(
                    self._loss_of_batch(batch), parameters, allow_unused=True, materialize_grads=True
                )
                if origins:
                    gradients = _pulled(gradients, parameters, origins, instructions.proximal)
                _descend(parameters, velocities, gradients, instructions)

    def _optimise(self, instructions: Instructions) -> None:
        parameters = self._trainable()
        optimizer = (self._optimizer or _plain)(parameters, instructions)
        steps = steps_of(self._data, instructions.batch_size) * instructions.epochs
        schedule = None if self._schedule is None else self._schedule(optimizer, max(steps, 1))
        origins = [parameter.detach().clone() for parameter in parameters]
        for _ in range(instructions.epochs):
            for batch in shuffled(self._data, instructions.batch_size):
                optimizer.zero_grad()
                self._loss_of_batch(batch).backward()  # type: ignore[no-untyped-call]  # torch's own
                if instructions.proximal:
                    for parameter, origin in zip(parameters, origins, strict=True):
                        pull = instructions.proximal * (parameter.detach() - origin)
                        parameter.grad = pull if parameter.grad is None else parameter.grad + pull
                optimizer.step()
                if schedule is not None:
                    schedule.step()

    def _trainable(self) -> list[torch.nn.Parameter]:
        return [parameter for parameter in self.module.parameters() if parameter.requires_grad]

    def _loss_of_batch(self, batch: Any) -> torch.Tensor:
        inputs, targets = split(moved(batch, self.device))
        return self._loss(outputs_of(self.module, inputs), targets)

    # --- figures -----------------------------------------------------------------------------------------------------

    def evaluate(self) -> dict[str, float]:
        """Test samples, their mean loss, and the metrics: each of all samples together, never a mean of means."""
        total, number, retained = 0.0, 0, list[tuple[Any, Any]]()
        metrics = self._metrics
        with one_at_a_time, torch.no_grad():
            self.module.eval()
            for batch in in_order(self._test):
                inputs, targets = split(moved(batch, self.device))
                outputs = outputs_of(self.module, inputs)
                size = size_of(targets if isinstance(targets, torch.Tensor) and targets.ndim else batch)
                total, number = total + float(self._loss(outputs, targets)) * size, number + size
                if metrics is None:
                    metrics = {"accuracy": Metric(_right_share)} if _are_classes(outputs, targets) else {}
                if metrics:
                    retained.append((outputs, targets))
            figures = {"samples": float(number), "loss": total / number} if number else {}
            if retained and metrics:
                everything = joined([item[0] for item in retained]), joined([item[1] for item in retained])
                figures |= {name: float(metric.function(*everything)) for name, metric in metrics.items()}
        return {name: value for name, value in figures.items() if math.isfinite(value)}

    # --- gradients ---------------------------------------------------------------------------------------------------

    def trained(self) -> tuple[str, ...]:
        """What travels and has gradients, in the module's order."""
        trainable = [name for name, value in self.module.named_parameters() if value.requires_grad]
        at_home = [name for name in trainable if name not in self._names]
        if at_home:
            raise BadLearner(
                f"this strategy trains what travels and nothing else, but {at_home[0]} stays at home; freeze it "
                "(requires_grad_(False)) or exchange it"
            )
        return tuple(trainable)

    def loss_of(self, indices: Indices) -> float:
        """Mean loss of some training samples at the present parameters."""
        with one_at_a_time, torch.no_grad():
            self.module.eval()
            return float(self._loss_of_batch(chosen(self._data, indices)))

    def gradient_sum(self, indices: Indices, bound: float, norm: Norm = "l2") -> dict[str, NDArray[np.floating[Any]]]:
        """Sum of the samples' own gradients, each clipped to a norm of `bound`; an infinite one leaves them be."""
        names = self.trained()
        batch = moved(chosen(self._data, indices), self.device)
        with one_at_a_time:
            self.module.train()
            if math.isinf(bound):
                value = self._loss_of_batch(batch) * len(indices)
                result = torch.autograd.grad(value, self._trainable(), allow_unused=True, materialize_grads=True)
                totals = dict(zip(names, result, strict=True))
            else:
                inputs, targets = split(batch)
                if not isinstance(inputs, torch.Tensor) or not isinstance(targets, torch.Tensor):
                    raise BadLearner(
                        "each sample's gradient can be clipped only where a batch is one tensor of inputs and one of "
                        "targets; pack the inputs into one tensor"
                    )
                totals = clipped_gradients(self.module, self._loss, inputs, targets, bound, norm=norm).total
        return {name: totals[name].detach().cpu().numpy() for name in names}


def _device(wanted: str | torch.device) -> torch.device:
    if wanted != "auto":
        return torch.device(wanted)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _are_classes(outputs: Any, targets: Any) -> bool:
    tensors = isinstance(outputs, torch.Tensor) and isinstance(targets, torch.Tensor)
    return tensors and outputs.ndim == 2 and targets.ndim == 1 and not targets.is_floating_point()


def _right_share(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return int((outputs.argmax(dim=1) == targets).sum()) / len(targets)


def _plain(parameters: list[torch.nn.Parameter], instructions: Instructions) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        parameters, instructions.learning_rate, instructions.momentum, weight_decay=instructions.weight_decay
    )


@torch.no_grad()
def _pulled(
    gradients: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor], origins: Sequence[torch.Tensor], mu: float
) -> tuple[torch.Tensor, ...]:
    """g + μ·(w − w⁰): the gradients of FedProx."""
    trios = zip(gradients, parameters, origins, strict=True)
    return tuple(gradient + mu * (parameter - origin) for gradient, parameter, origin in trios)


@torch.no_grad()
def _descend(
    parameters: Sequence[torch.Tensor],
    velocities: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    instructions: Instructions,
) -> None:
    """One step, v ← momentum · v + g + decay · w, then w ← w − rate · v, in place.

    As torch.optim.SGD does, whose import brings torch's compiler along: seconds and 100 MB on a small device.
    """
    for parameter, velocity, gradient in zip(parameters, velocities, gradients, strict=True):
        velocity.mul_(instructions.momentum).add_(gradient).add_(parameter, alpha=instructions.weight_decay)
        parameter.sub_(velocity, alpha=instructions.learning_rate)

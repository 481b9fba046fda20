"""Local training with torch, behind plain arrays: everything else in this package sees models as named numpy tensors.

Only floating-point entries of a module's state travel; counters (such as a batch norm's) stay on the device. Training
is seeded: the same seed, data and model give the same bits, whatever else the process does, because torch's global
generator is set and restored under one lock.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from safetensors.numpy import save as save_tensors
from torch.utils.data import DataLoader, Dataset

from coterie.errors import WrongModel
from coterie.privacy.clipping import Norm, clipped_gradients
from coterie.work import Tensors

Loss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Samples: TypeAlias = Dataset[Any] | DataLoader[Any] | tuple[torch.Tensor, torch.Tensor]

EVALUATION_BATCH = 512
# torch has one global generator (dropout draws from it), so seeded trainings take turns within a process.
_ONE_AT_A_TIME = threading.RLock()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a task wants its devices to train; unknown keys of the task's training object are left to procedures."""

    epochs: int = 1
    batch_size: int = 32
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float = 1.0

    @classmethod
    def of(cls, training: Mapping[str, Any], batch_size: int = 0) -> Recipe:
        """From a work item: `batch_size` above 0 replaces the training object's."""
        known = {name: training[name] for name in cls.__slots__ if name in training}
        if batch_size:
            known["batch_size"] = batch_size
        recipe = cls(**known)
        if not (recipe.epochs >= 0 and recipe.batch_size >= 1 and recipe.learning_rate >= 0):
            raise WrongModel(f"the task's training hints make no sense: {dict(training)}")
        return recipe


def model_bytes(module: torch.nn.Module) -> bytes:
    """A module's floating-point state as a safetensors file: what a task starts from."""
    return save_tensors(_arrays(module))


def load_model(path: Path) -> dict[str, NDArray[np.floating[Any]]]:
    """Tensors of a model file; no code is ever read from it."""
    try:
        return dict(load_file(path))
    except (SafetensorError, ValueError, KeyError) as error:
        raise WrongModel(f"{path.name[:12]}… is no readable safetensors file ({error})") from error


class Trainer:
    """A torch module with the device's data: load a model, train it, measure it, see its gradients."""

    def __init__(
        self,
        module: torch.nn.Module,
        data: Samples,
        *,
        test_data: Samples | None = None,
        loss: Loss | None = None,
        accuracy: bool | None = None,
    ) -> None:
        """
        Args:
            module: what is trained; its state is overwritten by each round's model.
            data: training samples, as a dataset or loader of (input, target) pairs, or as two tensors.
            test_data: samples for the metrics; the training samples when left out.
            loss: mean loss of (outputs, targets); cross entropy when left out.
            accuracy: whether to report the share of right classes; by default when targets are whole numbers.
        """
        self.module, self._data, self._test = module, data, test_data if test_data is not None else data
        self._loss: Loss = loss or torch.nn.functional.cross_entropy
        self._accuracy = accuracy
        self._tensors: tuple[torch.Tensor, torch.Tensor] | None = None

    @property
    def samples(self) -> int:
        """Training samples."""
        data = self._data
        if isinstance(data, tuple):
            return len(data[0])
        return len(data.dataset if isinstance(data, DataLoader) else data)  # type: ignore[arg-type]

    @property
    def has_test_samples(self) -> bool:
        """Whether metrics are measured on samples of their own, not on those trained with."""
        return self._test is not self._data

    # --- the model as arrays -----------------------------------------------------------------------------------------

    def load(self, tensors: Tensors) -> None:
        """Overwrites the module's floating-point state; raises `WrongModel` unless names and shapes fit."""
        state = {name: value for name, value in self.module.state_dict().items() if value.is_floating_point()}
        if state.keys() != tensors.keys():
            odd = sorted(state.keys() ^ tensors.keys())[:3]
            raise WrongModel(f"the task's model and this module differ in {', '.join(odd)}; give the module it is for")
        with torch.no_grad():
            for name, value in state.items():
                if tuple(value.shape) != tensors[name].shape:
                    raise WrongModel(
                        f"{name} has shape {list(tensors[name].shape)} in the task, {list(value.shape)} in this module"
                    )
                value.copy_(torch.from_numpy(np.ascontiguousarray(tensors[name])))

    def tensors(self) -> dict[str, NDArray[np.floating[Any]]]:
        """The module's floating-point state, copied."""
        return _arrays(self.module)

    def parameters(self) -> NDArray[np.float64]:
        """All trainable parameters in one flat vector."""
        with torch.no_grad():
            flat = torch.nn.utils.parameters_to_vector(self.module.parameters())
        return flat.cpu().numpy().astype(np.float64)

    def set_parameters(self, vector: NDArray[np.floating[Any]]) -> None:
        """Overwrites all trainable parameters from a flat vector."""
        expected = sum(parameter.numel() for parameter in self.module.parameters())
        if vector.shape != (expected,):
            raise ValueError(f"the module has {expected} parameters, got a vector of shape {vector.shape}")
        with torch.no_grad():
            kind = next(self.module.parameters())
            values = torch.from_numpy(np.ascontiguousarray(vector)).to(kind)
            torch.nn.utils.vector_to_parameters(values, self.module.parameters())

    # --- training ----------------------------------------------------------------------------------------------------

    def train(self, recipe: Recipe, seed: int) -> None:
        """Stochastic gradient descent over the device's samples, in an order drawn from `seed`."""
        parameters = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        velocities = [torch.zeros_like(parameter) for parameter in parameters]
        with seeded(seed):
            self.module.train()
            for _ in range(recipe.epochs):
                for inputs, targets in self._batches(recipe.batch_size):
                    value = self._loss(self.module(inputs), targets)
                    gradients = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
                    _descend(parameters, velocities, gradients, recipe)

    def evaluate(self) -> dict[str, float]:
        """Mean loss on the test samples, and the share of right classes where targets are classes."""
        return self._measure(self._test)

    def evaluate_training(self) -> dict[str, float]:
        """The same on the training samples."""
        return self._measure(self._data)

    def gradient(self) -> NDArray[np.float64]:
        """Mean gradient over all training samples at the present parameters, flat."""
        inputs, targets = self._all()
        wanted = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        with _ONE_AT_A_TIME:
            self.module.eval()
            value = self._loss(self.module(inputs), targets)
            gradients = torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True)
        return torch.cat([gradient.flatten() for gradient in gradients]).cpu().numpy().astype(np.float64)

    def loss_of(self, indices: NDArray[np.integer[Any]]) -> float:
        """Mean loss over some training samples at the present parameters."""
        inputs, targets = self._all()
        chosen = torch.from_numpy(np.ascontiguousarray(indices, dtype=np.int64))
        with _ONE_AT_A_TIME, torch.no_grad():
            self.module.eval()
            return float(self._loss(self.module(inputs[chosen]), targets[chosen]))

    def clipped_gradient_sum(
        self, indices: NDArray[np.integer[Any]], bound: float, norm: Norm = "l2"
    ) -> NDArray[np.float64]:
        """Sum of the samples' own gradients, each clipped to a norm of `bound` (infinite: as they are), flat."""
        inputs, targets = self._all()
        chosen = torch.from_numpy(np.ascontiguousarray(indices, dtype=np.int64))
        with _ONE_AT_A_TIME:
            self.module.train()
            found = clipped_gradients(self.module, self._loss, inputs[chosen], targets[chosen], bound, norm=norm)
        return torch.cat([value.flatten() for value in found.total.values()]).cpu().numpy().astype(np.float64)

    # --- samples -----------------------------------------------------------------------------------------------------

    def _batches(self, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        if isinstance(self._data, DataLoader):
            yield from self._data
            return
        if isinstance(self._data, tuple):
            inputs, targets = self._data
            order = torch.randperm(len(inputs))
            for start in range(0, len(inputs), size):
                chosen = order[start : start + size]
                yield inputs[chosen], targets[chosen]
            return
        yield from DataLoader(self._data, batch_size=size, shuffle=True)

    def _all(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All training samples as two tensors, made once."""
        if self._tensors is None:
            pairs = list(_in_order(self._data))
            self._tensors = torch.cat([pair[0] for pair in pairs]), torch.cat([pair[1] for pair in pairs])
        return self._tensors

    def _measure(self, data: Samples) -> dict[str, float]:
        total, right, count = 0.0, 0, 0
        counts_classes = self._accuracy
        with _ONE_AT_A_TIME, torch.no_grad():
            self.module.eval()
            for inputs, targets in _in_order(data):
                outputs = self.module(inputs)
                total += float(self._loss(outputs, targets)) * len(inputs)
                count += len(inputs)
                if counts_classes is None:
                    counts_classes = outputs.ndim == 2 and not targets.is_floating_point()
                if counts_classes:
                    right += int((outputs.argmax(dim=1) == targets).sum())
        if not count:
            return {}
        metrics = {"loss": total / count} | ({"accuracy": right / count} if counts_classes else {})
        return {name: value for name, value in metrics.items() if math.isfinite(value)}


@torch.no_grad()
def _descend(
    parameters: Sequence[torch.Tensor],
    velocities: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    recipe: Recipe,
) -> None:
    """One step, v ← momentum · v + g + decay · w, then w ← w − rate · v, in place.

    As torch.optim.SGD does, whose import brings torch's compiler along: seconds and 100 MB on a small device.
    """
    for parameter, velocity, gradient in zip(parameters, velocities, gradients, strict=True):
        velocity.mul_(recipe.momentum).add_(gradient).add_(parameter, alpha=recipe.weight_decay)
        parameter.sub_(velocity, alpha=recipe.learning_rate)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within, torch draws from `seed`; afterwards it goes on as if nothing had been drawn."""
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def single_threaded() -> None:
    """One torch thread in this process: the same bits on every machine of a kind, and no fight over cores."""
    torch.set_num_threads(1)


def _in_order(data: Samples) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    if isinstance(data, tuple):
        inputs, targets = data
        for start in range(0, len(inputs), EVALUATION_BATCH):
            chosen = slice(start, start + EVALUATION_BATCH)
            yield inputs[chosen], targets[chosen]
    elif isinstance(data, DataLoader):
        yield from data
    else:
        yield from DataLoader(data, batch_size=EVALUATION_BATCH)


def _arrays(module: torch.nn.Module) -> dict[str, NDArray[np.floating[Any]]]:
    return {
        name: value.detach().cpu().numpy().copy()
        for name, value in module.state_dict().items()
        if value.is_floating_point()
    }

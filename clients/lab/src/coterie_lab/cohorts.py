"""Training of many simulated devices in one process: one kernel for small models, one for large ones.

`stacked` keeps the models of a chunk of devices in one tensor and takes every step for all of them at once: the cost
of Python and of starting operations is paid once a chunk. It trains linear layers with ReLU between them. `looped`
trains one device after another with one module whose parameters are written in place: where a single step keeps a core
busy, as convolutions do, nothing is faster. Which of the two a model is faster with is measured (`measure_kernels`),
and the name goes into the result, because sums in another order differ in their last bits.

Both are deterministic: devices are taken in chunks of `CHUNK`, batches follow from the seed and the device's place,
and everything runs on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

CHUNK = 64
"""Devices whose models are held at once. Results depend on it, so it is no option."""
Kernel: TypeAlias = Literal["stacked", "looped"]


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """Devices' samples as places in one shared data set, so that data is loaded and kept once.

    Attributes:
        inputs: all samples, one row each.
        targets: their classes.
        shares: (devices, most) places in `inputs`; a row is filled up with its first place.
        counts: how many of a row are a device's own.
    """

    inputs: Tensor
    targets: Tensor
    shares: Tensor
    counts: Tensor

    @property
    def devices(self) -> int:
        """How many there are."""
        return len(self.shares)


@dataclass(frozen=True, slots=True)
class Lesson:
    """How a device trains in a round: plain SGD over batches of its own samples."""

    rate: float
    batch: int
    epochs: int = 1


def parameters_of(module: nn.Module) -> Tensor:
    """All parameters in one vector."""
    return torch.cat([each.detach().reshape(-1) for each in module.parameters()])


def changes(
    module: nn.Module, model: Tensor, cohort: Cohort, lesson: Lesson, seed: int, kernel: Kernel
) -> Iterator[Tensor]:
    """What each device's training adds to the model, one row each, a chunk of devices at a time."""
    train = _stacked if kernel == "stacked" else _looped
    for first in range(0, cohort.devices, CHUNK):
        chunk = slice(first, min(first + CHUNK, cohort.devices))
        yield train(module, model, cohort, chunk, lesson, seed)


def mean_change(module: nn.Module, model: Tensor, cohort: Cohort, lesson: Lesson, seed: int, kernel: Kernel) -> Tensor:
    """The mean of all devices' changes, weighed by their samples."""
    total, first = torch.zeros_like(model), 0
    for part in changes(module, model, cohort, lesson, seed, kernel):
        total += cohort.counts[first : first + len(part)].to(model.dtype) @ part
        first += len(part)
    return total / cohort.counts.sum()


def measure_kernels(module: nn.Module, cohort: Cohort, lesson: Lesson, repeats: int = 3) -> dict[Kernel, float]:
    """Devices a processor second by each kernel on the first chunk, the best of a few tries, after one to warm up."""
    model, few = (
        parameters_of(module),
        Cohort(cohort.inputs, cohort.targets, cohort.shares[:CHUNK], cohort.counts[:CHUNK]),
    )
    speeds: dict[Kernel, float] = {}
    for kernel in ("stacked", "looped"):
        spent = []
        for _ in range(repeats + 1):
            began = time.process_time()
            for _ in changes(module, model, few, lesson, 0, kernel):
                pass
            spent.append(time.process_time() - began)
        speeds[kernel] = few.devices / min(spent[1:])
    return speeds


# --- the two kernels --------------------------------------------------------------------------------------------------


def _batches(cohort: Cohort, chunk: slice, lesson: Lesson, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Places (devices, batch) and which of them count, for every step of an epoch over the longest share.

    Each device goes through its own samples in an order of its own; where it has none left, its row counts nothing.
    """
    counts = cohort.counts[chunk]
    own = torch.arange(cohort.shares.shape[1]) < counts[:, None]
    for epoch in range(lesson.epochs):
        draw = torch.Generator().manual_seed((seed * 1_000_003 + epoch) * 1_000_003 + chunk.start)
        keys = torch.rand(own.shape, generator=draw)
        order = torch.where(own, keys, 2.0).argsort(dim=1)
        places, counting = cohort.shares[chunk].gather(1, order), own.gather(1, order)
        for first in range(0, int(counts.max()), lesson.batch):
            step = slice(first, first + lesson.batch)
            yield places[:, step], counting[:, step]


def _stacked(module: nn.Module, model: Tensor, cohort: Cohort, chunk: slice, lesson: Lesson, seed: int) -> Tensor:
    """All devices' layers as stacks of matrices, forwards and backwards by hand; a step is added in the product itself.

    With z_l = a_{l-1} W_l' + b_l, a_l = max(z_l, 0) and g_L = (softmax(z_L) - y)/n for the mean cross-entropy:
    dW_l = g_l' a_{l-1}, db_l = Σ g_l and g_{l-1} = g_l W_l where z_{l-1} > 0.
    """
    layers = dense_layers(module)
    pieces = torch.split(model, [each.numel() for layer in layers for each in (layer.weight, layer.bias)])
    devices = chunk.stop - chunk.start
    weights = [_copies(pieces[2 * k], layer.weight.shape, devices) for k, layer in enumerate(layers)]
    biases = [_copies(pieces[2 * k + 1], (1, *layer.bias.shape), devices) for k, layer in enumerate(layers)]
    for places, counting in _batches(cohort, chunk, lesson, seed):
        active = [cohort.inputs.index_select(0, places.reshape(-1)).reshape(devices, places.shape[1], -1)]
        for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            scores = torch.baddbmm(bias, active[-1], weight.mT)
            active.append(scores if k == len(weights) - 1 else scores.relu_())
        slope = active.pop().softmax(dim=2)
        slope.scatter_add_(
            2, cohort.targets[places][:, :, None], slope.new_full((1, 1, 1), -1.0).expand(*places.shape, 1)
        )
        slope *= (counting / counting.sum(dim=1, keepdim=True).clamp(min=1))[:, :, None]
        for k in reversed(range(len(weights))):
            before = torch.bmm(slope, weights[k]).mul_(active[k] > 0) if k else None
            weights[k].baddbmm_(slope.mT, active[k], alpha=-lesson.rate)
            biases[k].sub_(slope.sum(dim=1, keepdim=True), alpha=lesson.rate)
            slope = slope if before is None else before
    trained = [each.reshape(devices, -1) for pair in zip(weights, biases, strict=True) for each in pair]
    return torch.cat(trained, dim=1) - model


def _copies(piece: Tensor, shape: Sequence[int], devices: int) -> Tensor:
    return piece.reshape(*shape).expand(devices, *shape).clone()


def dense_layers(module: nn.Module) -> list[nn.Linear]:
    """Layers of a chain of linear layers with ReLU between them; raises where the module is anything else."""
    layers: list[nn.Linear] = []
    straight = True
    for each in module.children() if isinstance(module, nn.Sequential) else [module]:
        if isinstance(each, nn.Linear) and straight:
            layers.append(each)
            straight = False
        elif isinstance(each, nn.ReLU) and not straight:
            straight = True
        elif not isinstance(each, nn.Flatten):
            raise ValueError(f"the stacked kernel trains linear layers with ReLU between them, not {each}")
    if straight or any(layer.bias is None for layer in layers):
        raise ValueError(f"the stacked kernel trains linear layers with biases, the last without ReLU, not {module}")
    return layers


def _looped(module: nn.Module, model: Tensor, cohort: Cohort, chunk: slice, lesson: Lesson, seed: int) -> Tensor:
    weights: list[Tensor] = list(module.parameters())
    pieces = [
        piece.reshape(w.shape)
        for piece, w in zip(torch.split(model, [w.numel() for w in weights]), weights, strict=True)
    ]
    steps = list(_batches(cohort, chunk, lesson, seed))
    found = torch.empty(chunk.stop - chunk.start, len(model))
    for row in range(chunk.stop - chunk.start):
        with torch.no_grad():
            torch._foreach_copy_(weights, pieces)
        for places, counting in steps:
            own = places[row][counting[row]]
            if len(own) == 0:
                continue
            gradients = torch.autograd.grad(cross_entropy(module(cohort.inputs[own]), cohort.targets[own]), weights)
            with torch.no_grad():
                torch._foreach_add_(weights, gradients, alpha=-lesson.rate)
        found[row] = parameters_of(module)
    with torch.no_grad():
        torch._foreach_copy_(weights, pieces)
    return found - model

"""Training of many simulated devices in one process: one kernel for small models, one for large ones.

`stacked` keeps the models of a chunk of devices in one tensor and takes every step for all of them at once: the cost
of Python and of starting operations is paid once a chunk. It trains linear layers with ReLU between them. `looped`
trains one device after another in one module, whose parameters lie in one vector: where a single step keeps a core
busy, as convolutions do, nothing is faster, and only one device's model is held. `kernel_for` is the rule that
`make bench-lab` measures; the name goes into the result, because sums in another order differ in their last bits.

Both are deterministic: devices are taken in chunks of `CHUNK`, batches follow from the seed and the device's place,
and everything runs on one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from coterie_lab.pooled import pooled

CHUNK = 64
"""Devices whose models are held at once. Results depend on it, so it is not an option."""
STACKED_UP_TO = 100_000
"""Parameters from which stacking wins nothing: a chunk's models are then larger than what a core keeps at hand."""
CHANNELS_LAST_FROM = 32
"""Filters of a convolution from which images are laid out with their channels last: pooling is then vectorised."""
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
    """How a device trains in a round: plain SGD over batches of the samples it has."""

    rate: float
    batch: int
    epochs: int = 1


def parameters_of(module: nn.Module) -> Tensor:
    """All parameters in one vector."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


def kernel_for(module: nn.Module) -> Kernel:
    """The faster one: small stacks of linear layers are trained stacked, everything else looped."""
    try:
        dense_layers(module)
    except ValueError:
        return "looped"
    return "stacked" if sum(parameter.numel() for parameter in module.parameters()) <= STACKED_UP_TO else "looped"


def changes(
    module: nn.Module, model: Tensor, cohort: Cohort, lesson: Lesson, seed: int, kernel: Kernel
) -> Iterator[Tensor]:
    """What each device's training adds to the model, one row each: a chunk's rows at a time, or one (`looped`)."""
    train = _stacked if kernel == "stacked" else _looped
    for first in range(0, cohort.devices, CHUNK):
        chunk = slice(first, min(first + CHUNK, cohort.devices))
        yield from train(module, model, cohort, chunk, lesson, seed)


def mean_change(module: nn.Module, model: Tensor, cohort: Cohort, lesson: Lesson, seed: int, kernel: Kernel) -> Tensor:
    """The mean of all devices' changes, weighed by their samples."""
    total, first = torch.zeros_like(model), 0
    for part in changes(module, model, cohort=cohort, lesson=lesson, seed=seed, kernel=kernel):
        total += cohort.counts[first : first + len(part)].to(model.dtype) @ part
        first += len(part)
    return total / cohort.counts.sum()


# --- the two kernels --------------------------------------------------------------------------------------------------


def _orders(cohort: Cohort, chunk: slice, lesson: Lesson, seed: int) -> Iterator[Tensor]:
    """Places of each device's samples (devices, most) for every epoch: its own first, in its own order."""
    own = torch.arange(cohort.shares.shape[1]) < cohort.counts[chunk, None]
    for epoch in range(lesson.epochs):
        draw = torch.Generator().manual_seed((seed * 1_000_003 + epoch) * 1_000_003 + chunk.start)
        keys = torch.rand(own.shape, generator=draw)
        yield cohort.shares[chunk].gather(1, torch.where(own, keys, 2.0).argsort(dim=1))


def _batches(cohort: Cohort, chunk: slice, lesson: Lesson, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Places (devices, batch) and which of them count, for every step of an epoch over the longest share.

    Where a device has no samples left, its row counts nothing.
    """
    counts = cohort.counts[chunk]
    longest = int(counts.max())
    counting = torch.arange(longest) < counts[:, None]
    for places in _orders(cohort, chunk, lesson, seed):
        for first in range(0, longest, lesson.batch):
            step = slice(first, min(first + lesson.batch, longest))
            yield places[:, step], counting[:, step]


def _stacked(
    module: nn.Module, model: Tensor, cohort: Cohort, chunk: slice, lesson: Lesson, seed: int
) -> Iterator[Tensor]:
    """All devices' layers as stacks of matrices, forwards and backwards by hand; a step is added in the product itself.

    With z_l = a_{l-1} W_l' + b_l, a_l = max(z_l, 0) and g_L = (softmax(z_L) - y)/n for the mean cross-entropy:
    dW_l = g_l' a_{l-1}, db_l = Σ g_l and g_{l-1} = g_l W_l where z_{l-1} > 0.
    """
    layers = dense_layers(module)
    pieces = torch.split(model, [item.numel() for layer in layers for item in (layer.weight, layer.bias)])
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
    trained = [item.reshape(devices, -1) for pair in zip(weights, biases, strict=True) for item in pair]
    yield torch.cat(trained, dim=1) - model


def _copies(piece: Tensor, shape: Sequence[int], devices: int) -> Tensor:
    return piece.reshape(*shape).expand(devices, *shape).clone()


def dense_layers(module: nn.Module) -> list[nn.Linear]:
    """Layers of a chain of linear layers with ReLU between them; raises where the module is anything else."""
    layers: list[nn.Linear] = []
    straight = True
    for item in module.children() if isinstance(module, nn.Sequential) else [module]:
        if isinstance(item, nn.Linear) and straight:
            layers.append(item)
            straight = False
        elif isinstance(item, nn.ReLU) and not straight:
            straight = True
        elif not isinstance(item, nn.Flatten):
            raise ValueError(f"the stacked kernel trains linear layers with ReLU between them, not {item}")
    if straight or any(layer.bias is None for layer in layers):
        raise ValueError(f"the stacked kernel trains linear layers with biases, the last without ReLU, not {module}")
    return layers


def _looped(
    module: nn.Module, model: Tensor, cohort: Cohort, chunk: slice, lesson: Lesson, seed: int
) -> Iterator[Tensor]:
    """One device after another in one module whose parameters are pieces of one vector."""
    flat = model.clone()
    layout, forward = _layout(module, cohort.inputs), _eager(module)
    weights: list[Tensor] = list(module.parameters())
    for weight, piece in zip(weights, torch.split(flat, [item.numel() for item in weights]), strict=True):
        weight.data = piece.view_as(weight)
    epochs = list(_orders(cohort, chunk, lesson, seed))
    for row, count in enumerate(cohort.counts[chunk].tolist()):
        flat.copy_(model)
        for places in epochs:
            own = places[row, :count]
            steps = zip(
                torch.split(cohort.inputs.index_select(0, own).contiguous(memory_format=layout), lesson.batch),
                torch.split(cohort.targets[own], lesson.batch),
                strict=True,
            )
            for inputs, targets in steps:
                slopes = torch.autograd.grad(cross_entropy(forward(inputs), targets), weights)
                with torch.no_grad():
                    torch._foreach_add_(weights, slopes, alpha=-lesson.rate)
        yield (flat - model)[None]
    flat.copy_(model)


def _layout(module: nn.Module, inputs: Tensor) -> torch.memory_format:
    wide = any(isinstance(item, nn.Conv2d) and item.out_channels >= CHANNELS_LAST_FROM for item in module.modules())
    return torch.channels_last if wide and inputs.dim() == 4 else torch.contiguous_format


def _eager(module: nn.Module) -> nn.Module:
    """The same function of the same parameters with less to do: ReLU in place, and after a pool of maxima instead of
    before it, where it has only the maxima to look at; a convolution goes backwards through its pool's maxima alone.
    Values and gradients are the same, since ReLU never falls."""
    if type(module) is not nn.Sequential:
        return module
    layers: list[nn.Module] = []
    for item in module:
        if isinstance(item, nn.MaxPool2d) and layers and isinstance(layers[-1], nn.ReLU):
            layers[-1:] = [item, nn.ReLU(inplace=True)]
        else:
            overwritable = layers and isinstance(layers[-1], nn.Conv2d | nn.Linear)
            layers.append(nn.ReLU(inplace=True) if isinstance(item, nn.ReLU) and overwritable else item)
    return nn.Sequential(*pooled(layers))

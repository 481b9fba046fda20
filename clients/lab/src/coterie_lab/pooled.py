"""A convolution under a pool of maxima, as one layer that goes backwards through the maxima alone.

A pool of p×p hands a slope to one place of p², at most, and the slopes of the convolution below are nothing at all
others. With z = W ∗ x and the maximum of a cell at place s: dW = Σ g·x[s + k] and dx[s + k] += g·W, over cells with
g ≠ 0 only: a p²-th of the products. A library's convolution multiplies the zeros, too.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numba
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

CHANNELS_FROM, CELLS_FROM = 16, 9
"""Channels of the input, and places of a pool's cell, from which this is faster: long runs of memory, and few of them.

Measured on one thread: with 2×2 nothing is won (0.90 to 1.15 of the time), with 4×4 a third of a small network's time.
"""


def pooled(layers: list[nn.Module]) -> list[nn.Module]:
    """The same layers with every convolution that a pool follows, where that is faster, made one with it."""
    result = [PooledConvolution(a, b) if _fit(a, b) else a for a, b in pairwise([*layers, nn.Identity()])]
    return [
        item for item, before in zip(result, [None, *result], strict=False) if type(before) is not PooledConvolution
    ]


def _fit(one: nn.Module, other: nn.Module) -> bool:
    if not (isinstance(one, nn.Conv2d) and isinstance(other, nn.MaxPool2d)):
        return False
    plain = one.stride == one.dilation == (1, 1) and one.groups == 1 and one.padding_mode == "zeros"
    pool = _pair(other.kernel_size)
    return (
        plain
        and not isinstance(one.padding, str)
        and one.in_channels >= CHANNELS_FROM
        and pool == _pair(other.stride)
        and prod(pool) >= CELLS_FROM
        and (_pair(other.padding), _pair(other.dilation), other.ceil_mode) == ((0, 0), (1, 1), False)
    )


def _pair(size: int | tuple[int, ...]) -> tuple[int, ...]:
    return (size, size) if isinstance(size, int) else size


class PooledConvolution(nn.Module):
    """A convolution of stride 1 and the pool on it, with the convolution's own parameters."""

    def __init__(self, convolution: nn.Module, pool: nn.Module) -> None:
        super().__init__()
        self.convolution, self.pool = convolution, pool

    def forward(self, inputs: Tensor) -> Tensor:
        """Maxima of the convolution's cells."""
        one = self.convolution
        top: Tensor = _Maxima.apply(inputs, one.weight, one.bias, one.padding, self.pool.kernel_size)  # type: ignore[no-untyped-call]
        return top


class _Maxima(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, padding: Any, pool: Any) -> Tensor:
        scores = nn.functional.conv2d(inputs, weight, bias, padding=padding)
        top, where = nn.functional.max_pool2d(scores, pool, return_indices=True)
        ctx.save_for_backward(inputs, weight, where)
        ctx.padding, ctx.width = padding, scores.shape[3]
        return top

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight, where = ctx.saved_tensors
        # Channels last, so that a row of a patch is one run of memory.
        images, filters = (item.permute(0, 2, 3, 1).contiguous() for item in (inputs, weight))
        by_image, by_filter = torch.zeros_like(images), torch.zeros_like(filters)
        slope, place = (item.flatten(2).contiguous().numpy() for item in (slopes, where))
        known, result = (images.numpy(), filters.numpy()), (by_image.numpy(), by_filter.numpy())
        _spread(slope, place, known, result, ctx.width, ctx.padding)
        bias = slopes.sum(dim=(0, 2, 3)) if ctx.needs_input_grad[2] else None
        return by_image.permute(0, 3, 1, 2), by_filter.permute(0, 3, 1, 2), bias, None, None


@numba.njit(cache=True, nogil=True)  # type: ignore[misc, unused-ignore]  # numba has no types
def _spread(  # type: ignore[no-untyped-def]
    slopes, places, known, targets, width, padding
):  # pragma: no cover - compiled
    """Adds every cell's part to the slopes of images and filters, `targets`. Places count along rows of `width`."""
    (images, filters), (above, beside) = known, padding
    count, kinds, cells = slopes.shape
    _, height, breadth, channels = images.shape
    _, rows, columns, _ = filters.shape
    shown, weights, to_image, to_filter = images.ravel(), filters.ravel(), targets[0].ravel(), targets[1].ravel()
    for n in range(count):
        for o in range(kinds):
            for cell in range(cells):
                slope = slopes[n, o, cell]
                if slope == 0.0:
                    continue
                top, left = places[n, o, cell] // width - above, places[n, o, cell] % width - beside
                first, last = max(0, left), min(breadth, left + columns)
                run = (last - first) * channels
                for k in range(max(0, -top), min(rows, height - top)):
                    at = ((n * height + top + k) * breadth + first) * channels
                    of = ((o * rows + k) * columns + first - left) * channels
                    # Two loops over four slices: as one, or by index, they are not compiled to vectors.
                    source, target = shown[at : at + run], to_filter[of : of + run]
                    for i in range(run):
                        target[i] += slope * source[i]
                    source, target = weights[of : of + run], to_image[at : at + run]
                    for i in range(run):
                        target[i] += slope * source[i]

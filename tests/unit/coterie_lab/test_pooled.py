"""A convolution made one with its pool is the same function with the same slopes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from coterie_lab.pooled import CHANNELS_FROM, PooledConvolution, pooled

WIDE = CHANNELS_FROM


@pytest.mark.parametrize(
    ("convolution", "pool"),
    [
        (nn.Conv2d(WIDE, 3, 3, padding=1), nn.MaxPool2d(4)),
        (nn.Conv2d(WIDE, 2, (5, 3), padding=(2, 0), bias=False), nn.MaxPool2d((3, 4))),
        (nn.Conv2d(WIDE, 2, 3, padding=2), nn.MaxPool2d(3)),
    ],
    ids=["padded", "unlike sides, no bias", "rows and columns left over"],
)
def test_values_and_slopes_are_those_of_the_two_layers(convolution: nn.Conv2d, pool: nn.MaxPool2d) -> None:
    """Some cells are blank, so that maxima tie, and some slopes are nothing; images lie in memory in either way."""
    torch.manual_seed(0)
    images = torch.rand(3, WIDE, 12, 12)
    images[0, :, :6] = 0.0
    for layout in (torch.contiguous_format, torch.channels_last):
        shown = images.contiguous(memory_format=layout).requires_grad_()
        both = [nn.Sequential(convolution, pool), nn.Sequential(*pooled([convolution, pool]))]
        assert isinstance(both[1][0], PooledConvolution)
        tops = [item(shown) for item in both]
        assert torch.equal(*tops)
        slopes = torch.randn(tops[0].shape).relu()
        gradients = [torch.autograd.grad(top, [shown, *convolution.parameters()], slopes) for top in tops]
        for expected, result in zip(*gradients, strict=True):
            assert expected.abs().max() > 0.1
            assert torch.allclose(expected, result, atol=1e-5)


def test_one_slope_by_hand() -> None:
    """The largest of nine scores is at a corner: its patch has four pixels of the image, and padding."""
    convolution = nn.Conv2d(WIDE, 1, 3, padding=1)
    nn.init.ones_(convolution.weight)
    image = torch.zeros(1, WIDE, 3, 3)
    image[0, 5, 0, 0] = 2.0
    image[0, 7, 1, 1] = -1.0
    image.requires_grad_()
    (layer,) = pooled([convolution, nn.MaxPool2d(3)])
    by_image, by_weight = torch.autograd.grad(layer(image)[0, 0, 0, 0], [image, convolution.weight])
    # Scores of (0,0), (0,1), (1,0), (1,1) are all 2 − 1: the first of equals is the maximum.
    assert by_image[0, 5].tolist() == [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    assert by_weight[0, 5].tolist() == [[0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]
    assert by_weight[0, 7].tolist() == [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, -1.0]]


@pytest.mark.parametrize(
    ("convolution", "pool"),
    [
        (nn.Conv2d(WIDE - 1, 3, 3), nn.MaxPool2d(4)),
        (nn.Conv2d(WIDE, 3, 3), nn.MaxPool2d(2)),
        (nn.Conv2d(WIDE, 3, 3), nn.MaxPool2d(4, stride=2)),
        (nn.Conv2d(WIDE, 3, 3), nn.MaxPool2d(4, padding=1)),
        (nn.Conv2d(WIDE, 3, 3), nn.MaxPool2d(4, ceil_mode=True)),
        (nn.Conv2d(WIDE, 3, 3, stride=2), nn.MaxPool2d(4)),
        (nn.Conv2d(WIDE, 4, 3, groups=2), nn.MaxPool2d(4)),
        (nn.Conv2d(WIDE, 3, 3, padding="same"), nn.MaxPool2d(4)),
        (nn.Conv2d(WIDE, 3, 3, padding=1, padding_mode="circular"), nn.MaxPool2d(4)),
    ],
)
def test_layers_of_another_shape_stay_as_they_are(convolution: nn.Module, pool: nn.Module) -> None:
    layers = [nn.ReLU(), convolution, pool, nn.ReLU()]
    assert pooled(layers) == layers

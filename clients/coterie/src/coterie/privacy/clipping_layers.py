"""Clipped per-example gradients of plain stacks of linear layers, without forming any example's gradient.

An example's gradient of a linear layer is the outer product of the loss derivative at its output and its input. Its L1
or L2 norm is the product of their norms, and the scaled sum over examples is one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity, nn.Flatten)


@dataclass(frozen=True, slots=True)
class LinearPass:
    """Inputs and output derivatives of one linear layer for a batch.

    Attributes:
        weight, bias: the parameters' names; None for one that is not trained.
        went_in, came_back: a row per example: its input, and the derivative of its loss by the layer's output.
    """

    weight: str | None
    bias: str | None
    went_in: torch.Tensor
    came_back: torch.Tensor

    def norms(self, order: int) -> torch.Tensor:
        """Norm of each example's gradient of this layer's trained parameters."""
        back = torch.linalg.vector_norm(self.came_back, order, dim=1)
        inputs = torch.linalg.vector_norm(self.went_in, order, dim=1) if self.weight else torch.zeros_like(back)
        ones = torch.full_like(back, 1.0 if self.bias else 0.0)
        norms: torch.Tensor = back * torch.linalg.vector_norm(torch.stack([inputs, ones]), order, dim=0)
        return norms

    def add_to(self, total: dict[str, torch.Tensor], factors: torch.Tensor) -> None:
        """Add the examples' gradients, each times its factor, to `total`."""
        scaled = factors[:, None] * self.came_back
        if self.weight:
            total[self.weight] += scaled.T @ self.went_in
        if self.bias:
            total[self.bias] += scaled.sum(dim=0)


def is_plain_stack(model: nn.Module, inputs: torch.Tensor) -> bool:
    """Whether the model consists of linear layers, each used once on flat examples, and elementwise functions.

    Such a model cannot mix examples, so a whole batch may pass through it at once.
    """
    layers = _layers(model)
    if model._forward_hooks or model._forward_pre_hooks:
        return False
    parameters = [value for layer in layers for value in layer.parameters()]
    if len({id(value) for value in parameters}) < len(parameters):
        return False
    flat = inputs.ndim == 2
    for layer in layers:
        if type(layer) not in (nn.Linear, *ELEMENTWISE) or layer._forward_hooks or layer._forward_pre_hooks:
            return False
        if isinstance(layer, nn.Flatten):
            flat = (layer.start_dim, layer.end_dim) == (1, -1)
        if isinstance(layer, nn.Linear) and not flat:
            return False
    return bool(parameters)


def passes(
    model: nn.Module,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    targets: torch.Tensor,
) -> list[LinearPass]:
    """Run a batch forward and back through a plain stack; omit layers without trained parameters."""
    names = {id(value): name for name, value in model.named_parameters() if value.requires_grad}
    value, seen = inputs, list[tuple[str | None, str | None, torch.Tensor, torch.Tensor]]()
    with torch.enable_grad():
        for layer in _layers(model):
            before, value = value, layer(value)
            if isinstance(layer, nn.Linear):
                weight, bias = names.get(id(layer.weight)), names.get(id(layer.bias))
                if weight or bias:
                    seen.append((weight, bias, before.detach(), value))
        alone = torch.func.vmap(lambda output, target: loss(output.unsqueeze(0), target.unsqueeze(0)))
        backs = torch.autograd.grad(alone(value, targets).sum(), [output for *_, output in seen])
    return [LinearPass(weight, bias, before, back) for (weight, bias, before, _), back in zip(seen, backs, strict=True)]


def _layers(model: nn.Module) -> list[nn.Module]:
    return list(model) if type(model) is nn.Sequential else [model]

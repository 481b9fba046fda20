"""Low-rank adapters: a frozen layer W learns through a small product, y = Wx + s·B(Ax); only A and B are exchanged.

E. Hu and others, "LoRA: Low-rank adaptation of large language models", ICLR 2022. B starts at 0, so the first step
starts from the unchanged model.
"""

from __future__ import annotations

import math
from fnmatch import fnmatchcase

import torch


class LowRank(torch.nn.Module):
    """A linear layer that is frozen, with its adapter."""

    def __init__(self, base: torch.nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.base, self.scale = base, scale
        self.lora_down = torch.nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_up = torch.nn.Parameter(torch.zeros(base.out_features, rank))
        torch.nn.init.kaiming_uniform_(self.lora_down, a=math.sqrt(5))

    @property
    def weight(self) -> torch.Tensor:
        """The layer's weight with the adapter in it; torch's transformers read it."""
        return self.base.weight + self.scale * (self.lora_up @ self.lora_down)

    @property
    def bias(self) -> torch.Tensor | None:
        """The layer's bias."""
        return self.base.bias

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Wx + s·B(Ax)."""
        beside = torch.nn.functional.linear(torch.nn.functional.linear(inputs, self.lora_down), self.lora_up)
        result: torch.Tensor = self.base(inputs) + self.scale * beside
        return result


def add_adapters(module: torch.nn.Module, rank: int = 4, *, only: str = "*", scale: float = 1.0) -> torch.nn.Module:
    """Freezes a module and gives each linear layer whose name fits the pattern `only` an adapter, in place.

    Exchange it with `exchange="adapters"`: 2·rank·width numbers a layer instead of width².
    """
    if rank < 1:
        raise ValueError(f"rank is {rank}; an adapter has at least one row")
    module.requires_grad_(False)
    result = 0
    for name, layer in list(module.named_modules()):
        for part, child in list(layer.named_children()):
            place = f"{name}.{part}" if name else part
            # Exactly linear layers: some of their kinds are read by torch without being called.
            if type(child) is torch.nn.Linear and fnmatchcase(place, only):
                setattr(layer, part, LowRank(child, rank, scale))
                result += 1
    if not result:
        raise ValueError(f"no linear layer fits {only!r}; its names are those of named_modules()")
    return module

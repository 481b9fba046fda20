"""Helpers shared by all torch code of this package: model files, the exchanged part of a module, seeds.

Only floating-point entries of a module's state are exchanged; counters, such as a batch norm's, stay on the device.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save as save_tensors

from coterie.errors import WrongModel
from coterie.learning.models import load_model

__all__ = ["Exchange", "load_model", "model_bytes", "names_that_travel", "one_at_a_time", "seeded", "single_threaded"]

Exchange: TypeAlias = str | Sequence[str]
"""What of a module travels: "all", "trainable", "adapters", or patterns such as "encoder.*"."""
ADAPTERS = ("*lora_*", "*adapter*")
"""Names of the tensors that adapters have."""

# torch has one global generator (dropout draws from it), so seeded trainings take turns within a process.
one_at_a_time = threading.RLock()


def model_bytes(module: torch.nn.Module, exchange: Exchange = "all") -> bytes:
    """What of a module travels as a safetensors file: what a task starts from."""
    return save_tensors(arrays_of(module, names_that_travel(module, exchange)))


def names_that_travel(module: torch.nn.Module, exchange: Exchange = "all") -> tuple[str, ...]:
    """Names of the tensors that travel, in the module's order; raises `WrongModel` where none does."""
    state = [name for name, value in module.state_dict().items() if value.is_floating_point()]
    trainable = {name for name, value in module.named_parameters() if value.requires_grad}
    patterns = ADAPTERS if exchange == "adapters" else (exchange,) if isinstance(exchange, str) else tuple(exchange)
    if exchange == "all":
        result = tuple(state)
    elif exchange == "trainable":
        result = tuple(name for name in state if name in trainable)
    else:
        result = tuple(name for name in state if any(fnmatchcase(name, pattern) for pattern in patterns))
    if not result:
        raise WrongModel(
            f"exchange {exchange!r} fits no tensor of this module, which has {', '.join(state[:6])}"
            f"{', …' if len(state) > 6 else ''}; give all, trainable, adapters or patterns of such names"
        )
    return result


def arrays_of(module: torch.nn.Module, names: Sequence[str]) -> dict[str, NDArray[np.floating[Any]]]:
    """Tensors of a module's state, copied."""
    state = module.state_dict()
    return {name: _array(state[name]) for name in names}


def _array(value: torch.Tensor) -> NDArray[np.floating[Any]]:
    value = value.detach().cpu()
    # numpy has no bfloat16.
    array: NDArray[np.floating[Any]] = (value.float() if value.dtype is torch.bfloat16 else value).numpy().copy()
    return array


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within, torch draws from `seed`; afterwards it goes on as if nothing had been drawn."""
    with one_at_a_time, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def single_threaded() -> None:
    """One torch thread in this process: the same bits on every machine of a kind, and no fight over cores."""
    torch.set_num_threads(1)

"""Batches of nested samples: tensors, and tuples, lists and dicts of them, from datasets, loaders or memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from coterie.errors import BadLearner

Samples: TypeAlias = (
    Dataset[Any] | DataLoader[Any] | tuple[Any, ...] | Mapping[str, Any] | Sequence[Any] | Iterator[Sequence[Any]]
)
"""A dataset or list of samples, a loader of batches, a tuple or dict of tensors stacked by sample, or an iterator: it
gives the list of samples there are at first, then after each round those that have come since."""
TARGETS = ("targets", "target", "labels", "label", "y")
"""Names under which a batch that is a dict holds what is to be learnt."""
EVALUATION_BATCH = 512


class Arriving(Dataset[Any]):
    """Samples that come over time, from an iterator of those that are new."""

    def __init__(self, arrivals: Iterator[Sequence[Any]]) -> None:
        self._arrivals, self._kept = arrivals, list[Any]()
        self.arrive()

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, place: int) -> Any:
        return self._kept[place]

    def arrive(self) -> None:
        """Takes over what has come since; nothing when the iterator has ended."""
        self._kept.extend(next(self._arrivals, ()))


def size_of(batch: Any) -> int:
    """How many samples a batch has: the length of its first tensor, wherever in the nesting that is."""
    result = next(_leaves(batch), None)
    if result is None:
        raise BadLearner(
            f"a batch of type {type(batch).__name__} holds no tensor, so its samples cannot be counted; give tensors "
            "(torch.from_numpy(array)), or a list of samples"
        )
    return len(result)


def count(data: Samples) -> int:
    """Samples there are now."""
    if _is_stacked(data):
        lengths = {len(leaf) for leaf in _leaves(data)}
        if len(lengths) > 1:
            raise BadLearner(
                f"the data's tensors have from {min(lengths)} to {max(lengths)} rows; each needs one row a sample"
            )
        return size_of(data)
    source: Any = data.dataset if isinstance(data, DataLoader) else data
    try:
        return len(source)
    except TypeError as error:
        raise BadLearner(
            f"{type(source).__name__} has no length; give a dataset with __len__ and __getitem__, or a list of samples"
        ) from error


def steps_of(data: Samples, size: int) -> int:
    """Batches in one pass over the samples."""
    return len(data) if isinstance(data, DataLoader) else -(-count(data) // size)


def shuffled(data: Samples, size: int) -> Iterator[Any]:
    """Batches of all samples in an order drawn from torch's generator; a loader's own batches as they come."""
    if isinstance(data, DataLoader):
        yield from data
    elif _is_stacked(data):
        order = torch.randperm(size_of(data))
        for start in range(0, len(order), size):
            yield _at(data, order[start : start + size])
    else:
        yield from DataLoader(data, batch_size=size, shuffle=True)  # type: ignore[arg-type]  # a list is a dataset


def in_order(data: Samples) -> Iterator[Any]:
    """Batches of all samples, as they lie."""
    if isinstance(data, DataLoader):
        yield from data
    elif _is_stacked(data):
        for start in range(0, size_of(data), EVALUATION_BATCH):
            yield _at(data, slice(start, start + EVALUATION_BATCH))
    else:
        yield from DataLoader(data, batch_size=EVALUATION_BATCH)  # type: ignore[arg-type]  # a list is a dataset


def chosen(data: Samples, indices: NDArray[np.integer[Any]]) -> Any:
    """One batch of these samples."""
    numbers = torch.from_numpy(np.ascontiguousarray(indices, dtype=np.int64))
    if _is_stacked(data):
        return _at(data, numbers)
    source: Any = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(source, TensorDataset):
        return tuple(tensor[numbers] for tensor in source.tensors)
    collate = (data.collate_fn if isinstance(data, DataLoader) else None) or default_collate
    return collate([source[int(number)] for number in indices])


def split(batch: Any) -> tuple[Any, Any]:
    """Inputs and targets: a pair, the last of a longer tuple, or what a dict has under one of `TARGETS`."""
    if isinstance(batch, Mapping):
        name = next((name for name in TARGETS if name in batch), None)
        if name is None:
            raise BadLearner(f"a batch has {', '.join(map(str, batch))} and none of {', '.join(TARGETS)}; give step=")
        return {key: value for key, value in batch.items() if key != name}, batch[name]
    if isinstance(batch, tuple | list) and len(batch) >= 2:
        return (batch[0], batch[1]) if len(batch) == 2 else (tuple(batch[:-1]), batch[-1])
    raise BadLearner("a batch is not an (input, target) pair; give pairs, longer tuples with the target last, or dicts")


def outputs_of(module: torch.nn.Module, inputs: Any) -> Any:
    """What a module makes of inputs: a tuple is its arguments, a dict its named ones."""
    if isinstance(inputs, Mapping):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, tuple | list) else module(inputs)


def moved(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor on a device."""
    return batch if device.type == "cpu" else _each(batch, lambda leaf: leaf.to(device))


def joined(pieces: Sequence[Any]) -> Any:
    """Batches as one: their tensors end to end."""
    first = pieces[0]
    if isinstance(first, torch.Tensor):
        return torch.cat([piece.reshape(1) if piece.ndim == 0 else piece for piece in pieces])
    if isinstance(first, Mapping):
        return {name: joined([piece[name] for piece in pieces]) for name in first}
    if isinstance(first, tuple | list):
        return tuple(joined([piece[place] for piece in pieces]) for place in range(len(first)))
    return list(pieces)


def _is_stacked(data: Samples) -> bool:
    """Tensors by sample in a tuple or dict; a list is a list of samples."""
    return isinstance(data, tuple | Mapping) and not isinstance(data, Dataset)


def _at(batch: Any, place: torch.Tensor | slice) -> Any:
    return _each(batch, lambda leaf: leaf[place])


def _each(batch: Any, act: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(batch, torch.Tensor):
        return act(batch)
    if isinstance(batch, Mapping):
        return {name: _each(value, act) for name, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_each(value, act) for value in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(_each(value, act) for value in batch)
    return batch


def _leaves(batch: Any) -> Iterator[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        if batch.ndim > 0:
            yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _leaves(value)
    elif isinstance(batch, tuple | list):
        for value in batch:
            yield from _leaves(value)

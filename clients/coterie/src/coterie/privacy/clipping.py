"""Clipping bounds what one device or one example can change; noise protects nothing without such a bound.

Device-level privacy clips the whole update once (`clip_update`, `clip_vector`); example-level privacy clips every
example's gradient before they are summed (`clipped_gradients`, which needs torch).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.preconditions import check_positive

if TYPE_CHECKING:
    import torch

FloatArray: TypeAlias = NDArray[np.floating[Any]]
Norm: TypeAlias = Literal["l1", "l2"]
Method: TypeAlias = Literal["auto", "vectorised", "loop"]
_Add: TypeAlias = "Callable[[dict[str, torch.Tensor], torch.Tensor], None]"
"""Adds the gradients of a batch to the totals, each times its example's factor."""
_Gradients: TypeAlias = "Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, _Add]]"
"""Returns the norm of each example's gradient in a batch of inputs and targets, and a function that adds them up."""
_ORDERS: dict[Norm, int] = {"l1": 1, "l2": 2}


@dataclass(frozen=True, slots=True)
class ClippedUpdate:
    """An update within the bound, its norm before clipping, and the applied factor (≤ 1)."""

    tensors: dict[str, FloatArray]
    norm_before: float
    factor: float


@dataclass(frozen=True, slots=True)
class ClippedGradients:
    """Sum of per-example gradients, each clipped, by parameter name; `norms` are those before clipping."""

    total: dict[str, torch.Tensor]
    norms: torch.Tensor


def update_norm(tensors: Mapping[str, FloatArray], norm: Norm = "l2") -> float:
    """Return the L1 or L2 norm of all entries of all tensors together, computed in double precision."""
    parts = [_norm(np.ravel(tensor), norm) for tensor in tensors.values()]
    return math.fsum(parts) if norm == "l1" else _norm(np.array(parts), "l2")


def clip_update(tensors: Mapping[str, FloatArray], bound: float, norm: Norm = "l2") -> ClippedUpdate:
    """Scale the whole update down to `norm` ≤ bound; return an update within the bound unchanged.

    Keeps types. The factor leaves room for their rounding, so the bound holds exactly and clipping is idempotent.
    Raises ValueError for integer tensors and values that are not finite.
    """
    check_positive("clip bound", bound)
    for name, tensor in tensors.items():
        if not np.issubdtype(tensor.dtype, np.floating):
            raise ValueError(f"tensor {name!r} holds {tensor.dtype}, not floats; leave it out of the update")
        if not bool(np.isfinite(tensor).all()):
            raise ValueError(f"tensor {name!r} holds values that are not finite; lower the learning rate and retrain")
    before = update_norm(tensors, norm)
    if before <= bound:
        return ClippedUpdate(dict(tensors), before, 1.0)
    rounding = max(float(np.finfo(tensor.dtype).eps) for tensor in tensors.values())
    factor = bound / before * (1.0 - 4.0 * rounding)
    scaled = {name: (tensor.astype(np.float64) * factor).astype(tensor.dtype) for name, tensor in tensors.items()}
    return ClippedUpdate(scaled, before, factor)


def clip_vector(vector: FloatArray, bound: float, norm: Norm = "l2") -> FloatArray:
    """`clip_update` of one array."""
    return clip_update({"vector": vector}, bound, norm).tensors["vector"]


def clipped_gradients(
    model: torch.nn.Module,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    targets: torch.Tensor,
    bound: float,
    *,
    norm: Norm = "l2",
    method: Method = "auto",
    chunk_size: int = 256,
) -> ClippedGradients:
    """Sum the gradients of all examples, each scaled to a norm of at most `bound`; an infinite bound scales none.

    `loss` takes a batch of outputs and targets and returns their mean; it is called with batches of one. All methods
    give the same sum. "vectorised" maps over at most `chunk_size` examples at once, which takes that many copies of the
    parameters; "loop" takes one at a time, for models that cannot be mapped; "auto" maps too, but computes plain stacks
    of linear layers by whole layers, tens of times as fast. Models with batch normalisation are refused: it mixes
    examples, so clipping would not bound any one of them. With a finite bound, an example whose gradient is not finite
    counts as zeros, because refusing it would reveal it.
    """
    check_positive("clip bound", bound)
    if len(inputs) != len(targets):
        raise ValueError(f"got {len(inputs)} inputs but {len(targets)} targets; give one target per example")
    _refuse_batch_normalisation(model)
    parameters = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}
    if method == "loop":
        return _by_loop(model, loss, inputs, targets, bound=bound, parameters=parameters, order=_ORDERS[norm])
    gradients_of = _by_map(model, loss, parameters, _ORDERS[norm])
    if method == "auto" and parameters:
        gradients_of = _by_layers(model, loss, inputs, _ORDERS[norm]) or gradients_of
    return _in_chunks(gradients_of, inputs, targets, bound=bound, parameters=parameters, chunk_size=chunk_size)


def _in_chunks(
    gradients_of: _Gradients,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    bound: float,
    parameters: dict[str, torch.Tensor],
    chunk_size: int,
) -> ClippedGradients:
    import torch

    total = {name: torch.zeros_like(value) for name, value in parameters.items()}
    norms = [torch.zeros(0)]
    for start in range(0, len(inputs), chunk_size):
        chunk = slice(start, start + chunk_size)
        norm, add_to = gradients_of(inputs[chunk], targets[chunk])
        norms.append(norm.cpu())
        sound = norm.isfinite()
        if not math.isinf(bound) and not bool(sound.all()):
            norm, add_to = gradients_of(inputs[chunk][sound], targets[chunk][sound])
        add_to(total, _factors(norm, bound))
    return ClippedGradients(total, torch.cat(norms))


def _by_layers(
    model: torch.nn.Module,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    order: int,
) -> _Gradients | None:
    """Compute gradients by whole layers, if the model is a plain stack of them."""
    import torch

    from coterie.privacy.clipping_layers import is_plain_stack, passes

    def gradients_of(inputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, _Add]:
        layers = passes(model, loss, inputs, targets)

        def add_to(total: dict[str, torch.Tensor], factors: torch.Tensor) -> None:
            for layer in layers:
                layer.add_to(total, factors)

        return torch.linalg.vector_norm(torch.stack([layer.norms(order) for layer in layers]), order, dim=0), add_to

    return gradients_of if is_plain_stack(model, inputs) else None


def _by_map(
    model: torch.nn.Module,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    parameters: dict[str, torch.Tensor],
    order: int,
) -> _Gradients:
    """Compute every example's gradient by mapping over examples."""
    import torch

    gradient = torch.func.vmap(torch.func.grad(_loss_of_one(model, loss)), in_dims=(None, 0, 0), randomness="different")

    def gradients_of(inputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, _Add]:
        gradients = gradient(parameters, inputs, targets)

        def add_to(total: dict[str, torch.Tensor], factors: torch.Tensor) -> None:
            for name, value in gradients.items():
                total[name] += torch.einsum("e,e...->...", factors, value)

        flat = torch.cat([value.flatten(1) for value in gradients.values()], dim=1)
        return torch.linalg.vector_norm(flat, order, dim=1), add_to

    return gradients_of


def _by_loop(
    model: torch.nn.Module,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    bound: float,
    parameters: dict[str, torch.Tensor],
    order: int,
) -> ClippedGradients:
    import torch

    total = {name: torch.zeros_like(value) for name, value in parameters.items()}
    norms = torch.zeros(len(inputs))
    wanted = [value for value in model.parameters() if value.requires_grad]
    for example in range(len(inputs)):
        value = loss(model(inputs[example : example + 1]), targets[example : example + 1])
        gradients = torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True)
        norm = torch.linalg.vector_norm(torch.cat([gradient.flatten() for gradient in gradients]), order)
        norms[example] = norm
        if not math.isinf(bound) and not bool(norm.isfinite()):
            continue
        for name, gradient in zip(parameters, gradients, strict=True):
            total[name] += gradient * _factors(norm, bound)
    return ClippedGradients(total, norms)


def _loss_of_one(
    model: torch.nn.Module, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> Callable[[dict[str, torch.Tensor], torch.Tensor, torch.Tensor], torch.Tensor]:
    import torch

    fixed = {name: value.detach() for name, value in model.named_parameters() if not value.requires_grad}
    fixed |= dict(model.named_buffers())

    def of_one(parameters: dict[str, torch.Tensor], example: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        output = torch.func.functional_call(model, (fixed, parameters), (example.unsqueeze(0),))
        return loss(output, target.unsqueeze(0))

    return of_one


def _factors(norms: torch.Tensor, bound: float) -> torch.Tensor:
    if not bool(norms.isfinite().all()):
        raise ValueError("an example's gradient is not finite; lower the learning rate or normalise the inputs")
    if math.isinf(bound):
        return norms.new_ones(norms.shape)
    return (bound / norms.clamp_min(bound)).to(norms.dtype)


def _refuse_batch_normalisation(model: torch.nn.Module) -> None:
    from torch.nn.modules.batchnorm import _BatchNorm

    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm):
            raise ValueError(
                f"module {name or 'model'!r} is a {type(module).__name__}, which mixes examples; "
                "use GroupNorm or LayerNorm for example-level privacy"
            )


def _norm(vector: FloatArray, norm: Norm) -> float:
    if vector.size == 0:
        return 0.0
    if norm == "l1":
        return float(np.abs(vector.astype(np.float64)).sum())
    from scipy.linalg import norm as blas_norm

    return float(blas_norm(vector.astype(np.float64), check_finite=False))

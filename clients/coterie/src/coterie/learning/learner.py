"""The interface between a device's own training code and this package: agents, strategies and fleets use a `Learner`.

    class MyLearner:
        samples = 120                                   # number of training samples now; may change
        def parameters(self): ...                       # {"name": array}: a copy of what is exchanged
        def load(self, tensors): ...                    # the same names and shapes, from the round's model
        def train(self, instructions, seed): ...        # in place; see `coterie.learning.training_config.Instructions`
        def evaluate(self): ...                         # {"loss": 0.3, ...}; may be empty

A learner may also have `better`, a dict that says whether a metric improves "up" or "down" (other metrics go by their
names), and `arrive()`, called after each round, to include data that arrived since.

Some strategies also need gradients (the market and example-level privacy clip each sample's; a mesh takes one step per
round). A learner that provides them has the methods of `Gradients`; any other declines such work.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from coterie.agent.report import Tensors
from coterie.errors import BadLearner, CoterieError, LearnerFailed, NotFinite
from coterie.learning.metrics import ARROWS, known_of
from coterie.learning.training_config import Instructions
from coterie.privacy.clipping import Norm
from coterie.protocol.transport import Interrupted

if TYPE_CHECKING:  # torch is imported only for a device that trains with it
    import torch

    from coterie.learning.batches import Samples
    from coterie.learning.torch_learner import Loss

T = TypeVar("T")
Indices: TypeAlias = NDArray[np.integer[Any]]
MOST_ERROR_CHARACTERS = 200
"""Characters of an author's error that reach the platform."""


class Learner(Protocol):
    """What a device learns with: its model and its data, whatever they are made of."""

    @property
    def samples(self) -> int:
        """Training samples now."""
        ...

    def parameters(self) -> Tensors:
        """What travels, by name: floating-point arrays, copied."""
        ...

    def load(self, tensors: Tensors) -> None:
        """Takes over a model of the same names and shapes."""
        ...

    def train(self, instructions: Instructions, seed: int) -> None:
        """Trains in place; the same seed, data and model give the same result."""
        ...

    def evaluate(self) -> Mapping[str, float]:
        """Figures of the present model; empty where there are none. "samples" says of how many samples they are."""
        ...


@runtime_checkable
class Gradients(Protocol):
    """What a learner may be able to do beside: tell gradients of chosen samples, numbered 0 to `samples` − 1."""

    def trained(self) -> Sequence[str]:
        """Names of the tensors that have gradients, in an order that never changes."""
        ...

    def loss_of(self, indices: Indices) -> float:
        """Mean loss of these samples under the present model."""
        ...

    def gradient_sum(self, indices: Indices, bound: float, norm: Norm = "l2") -> Tensors:
        """Sum of these samples' own gradients, each scaled to `norm` ≤ bound; an infinite bound leaves them be.

        Where there is a bound, a sample whose gradient is not finite should count as zeros; a sum that is not finite is
        taken apart, sample by sample.
        """
        ...


class Guarded:
    """A learner as strategies see it: whatever its author's code does wrong declines the round and says what it was."""

    def __init__(self, learner: Learner, *, tells: bool = True) -> None:
        """`tells`: whether the words of an author's error may go to the platform; they may hold private figures."""
        self.learner, self._tells = learner, tells
        self._loaded: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] | None = None

    @property
    def samples(self) -> int:
        """Training samples now, at least one: there is nothing to learn from none."""
        count = self._do("samples", lambda: self.learner.samples)
        if not isinstance(count, numbers.Integral) or count < 0:
            given = f" are {str(count)[:40]!r}; they" if self._tells else ""
            raise BadLearner(f"the learner's samples{given} must be a whole number from 0 on")
        if count == 0:
            raise BadLearner("this device has no training samples now; it takes part again when it has some")
        return int(count)

    def parameters(self) -> dict[str, NDArray[np.floating[Any]]]:
        """What travels: the names and shapes that were loaded, in their types, every number finite."""
        given = self._do("parameters", self.learner.parameters)
        return self._checked(given, self._loaded, "parameters")

    def load(self, tensors: Tensors) -> None:
        """Takes over a model."""
        self._do("load", lambda: self.learner.load(tensors))
        self._loaded = {name: (value.shape, value.dtype) for name, value in tensors.items()}

    def train(self, instructions: Instructions, seed: int) -> None:
        """Trains in place."""
        self._do("train", lambda: self.learner.train(instructions, seed))

    def evaluate(self) -> dict[str, float]:
        """Figures of the present model that are finite; others are left out."""
        given = self._do("evaluate", self.learner.evaluate)
        if not isinstance(given, Mapping):
            raise BadLearner(f"the learner's evaluate gave {type(given).__name__}, not a dict of numbers by name")
        for name, value in given.items():
            if not isinstance(name, str) or not isinstance(value, numbers.Real | np.ndarray) or np.ndim(value) != 0:
                raise BadLearner(f"the learner's figure {str(name)[:40]!r} is not a plain number")
        return {name: float(value) for name, value in given.items() if math.isfinite(value)}

    def arrive(self) -> None:
        """Lets the learner take over data that has come since the round before, where it wants to."""
        self._do("arrive", getattr(self.learner, "arrive", lambda: None))

    @property
    def better(self) -> dict[str, str]:
        """Which way figures get better, of those whose names do not say so."""
        given = self._do("better", lambda: getattr(self.learner, "better", {}))
        if not isinstance(given, Mapping) or any(way not in ARROWS for way in given.values()):
            raise BadLearner('the learner\'s better must be a dict of "up" or "down" by the names of figures')
        return {str(name): way for name, way in given.items() if way != known_of(str(name))}

    # --- gradients ---------------------------------------------------------------------------------------------------

    def _gradients(self) -> Gradients:
        if not isinstance(self.learner, Gradients):
            raise BadLearner(
                f"this strategy needs the gradients of single samples, which {type(self.learner).__name__} does "
                "not give; add trained, loss_of and gradient_sum to it, or use a TorchLearner"
            )
        return self.learner

    def trained(self) -> tuple[str, ...]:
        """Names of the tensors that have gradients."""
        names = tuple(self._do("trained", self._gradients().trained))
        if not names:
            raise BadLearner("nothing of what travels can be trained; see exchange= and requires_grad")
        return names

    def loss_of(self, indices: Indices) -> float:
        """Mean loss of these samples; infinite where it is not a number."""
        value = float(self._do("loss_of", lambda: self._gradients().loss_of(indices)))
        return value if not math.isnan(value) else math.inf

    def gradient_sum(self, indices: Indices, bound: float, norm: Norm = "l2") -> dict[str, NDArray[np.floating[Any]]]:
        """Sum of these samples' own gradients, each clipped."""
        try:
            return self._gradient_sum(indices, bound, norm)
        except NotFinite:
            if math.isinf(bound):
                raise
        return self._sound_gradients(indices, bound, norm)

    def _gradient_sum(self, indices: Indices, bound: float, norm: Norm) -> dict[str, NDArray[np.floating[Any]]]:
        given = self._do("gradient_sum", lambda: self._gradients().gradient_sum(indices, bound, norm))
        return self._checked(given, None, "gradient_sum")

    def _sound_gradients(self, indices: Indices, bound: float, norm: Norm) -> dict[str, NDArray[np.floating[Any]]]:
        """One sample after the other; one whose gradient is not finite counts as zeros: declining would tell of it."""
        model = self.parameters()
        total = {name: np.zeros_like(model[name]) for name in self.trained()}
        for index in indices:
            try:
                part = self._gradient_sum(np.array([index]), bound, norm)
            except NotFinite:
                continue
            total = {name: value + part[name] for name, value in total.items()}
        return total

    # --- checks ------------------------------------------------------------------------------------------------------

    def _do(self, what: str, act: Callable[[], T]) -> T:
        try:
            return act()
        except (CoterieError, Interrupted):
            raise
        except Exception as error:
            detail = (
                f": {str(error).strip().partition(chr(10))[0][:MOST_ERROR_CHARACTERS]}"
                if self._tells and str(error)
                else ""
            )
            raise LearnerFailed(f"the learner's {what} failed: {type(error).__name__}{detail}") from error

    def _checked(
        self, given: object, loaded: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]] | None, what: str
    ) -> dict[str, NDArray[np.floating[Any]]]:
        if not isinstance(given, Mapping):
            raise BadLearner(f"the learner's {what} gave {type(given).__name__}, not a dict of arrays by name")
        if loaded is not None and given.keys() != loaded.keys():
            missing, more = sorted(loaded.keys() - given.keys()), sorted(map(str, given.keys() - loaded.keys()))
            raise BadLearner(
                "the learner returns other tensors than it loaded: "
                + "; ".join(
                    f"{word} {', '.join(names[:3])}" for word, names in (("without", missing), ("with", more)) if names
                )
            )
        arrays = {name: np.asarray(value) for name, value in given.items()}
        for name, value in arrays.items():
            _check_one(name, value, loaded, what)
        retained = arrays if loaded is None else {n: v.astype(loaded[n][1], copy=False) for n, v in arrays.items()}
        return cast("dict[str, NDArray[np.floating[Any]]]", retained)


def _check_one(
    name: str, value: NDArray[Any], loaded: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]] | None, what: str
) -> None:
    if not np.issubdtype(value.dtype, np.floating):
        raise BadLearner(f"the learner's {what} gave {name} as {value.dtype}; tensors hold floating-point numbers")
    if loaded is not None and value.shape != loaded[name][0]:
        raise BadLearner(f"the learner gives {name} the shape {list(value.shape)}, it loaded {list(loaded[name][0])}")
    if not bool(np.isfinite(value).all()):
        raise NotFinite(
            f"NaN or infinity is in {name} of the learner's {what}; lower the learning rate or look for bad samples"
        )


def learner_of(
    learner: Learner | None,
    model: torch.nn.Module | None,
    data: Samples | None,
    test_data: Samples | None,
    loss: Loss | None,
) -> Learner | None:
    """The learner given, or one of a torch module and its data; None where there is neither."""
    if learner is not None:
        if any(given is not None for given in (model, data, test_data, loss)):
            raise ValueError("give a learner, or model and data; a learner brings its own")
        return learner
    if model is None or data is None:
        return None
    from coterie.learning.torch_learner import TorchLearner

    return TorchLearner(model, data, test_data=test_data, loss=loss)

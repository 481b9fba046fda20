"""Canaries for every mechanism: one release of the product's own code, in a world with or without a contribution.

The canary is 1 where the contribution is there, 0 where it is left out, −1 where it is replaced by its opposite. What
an observer sees are figures of all that leaves: values along the canary, the fineness of floats, and what is reported
beside them. The charges are those the code makes for that release.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from coterie.agent.home import DeviceHome
from coterie.agent.report import Delivery, Tensors
from coterie.errors import Declined
from coterie.learning import mixing
from coterie.learning.learner import Guarded
from coterie.learning.local_steps import LocalSteps
from coterie.learning.training_config import Instructions
from coterie.privacy.accounting import Charge, gaussian_charge
from coterie.privacy.adaptive import COUNT_SHARE, amplitude, joint_norm
from coterie.privacy.ledger import Limit
from coterie.privacy.releases import COUNT, Answer, Arrays, Change, CountedChange, Descent, Laplaced, Release
from coterie.privacy.simulation import SeededStream
from coterie.privacy.stream import Stream
from coterie.records import WorkItem
from coterie.secure_sums.contribution import contribution
from coterie.secure_sums.grid import choose_grid
from coterie.secure_sums.terms import Terms
from coterie.strategies.budget_sale import noised_descent
from coterie.strategies.clusters import Clusters
from coterie.strategies.context import RoundContext
from coterie.strategies.star import Star

ELEMENTS = 8
NOISE = 1.0
"""Noise multiplier of every canary: little, so that few runs show what is shown at all."""
LIMIT = Limit(1e6, 1e-5, "device", allow_raw=True)
DIRECTION = np.full(ELEMENTS, 1.0 / math.sqrt(ELEMENTS))
Observe = Callable[[float, Stream], "Sight"]


@dataclass(frozen=True, slots=True)
class Sight:
    """What is seen of one release, and what it was charged as."""

    figures: Mapping[str, float]
    charges: tuple[Charge, ...]


def seen(tensors: Mapping[str, NDArray[Any]], beside: Mapping[str, float] | None = None) -> dict[str, float]:
    """Figures of what leaves: the value along the canary, the fineness of its floats, and whatever goes beside it.

    A canary lies along the diagonal, or, where noise is measured in L1, wholly in the first element.
    """
    flat = np.concatenate([np.ravel(value).astype(np.float64) for value in tensors.values()])
    along = float(flat.sum()) / math.sqrt(flat.size)
    finest = max(float(value).as_integer_ratio()[1].bit_length() for value in flat)
    return {"value": along, "first element": float(flat[0]), "fineness": float(finest), **(beside or {})}


def _released(make: Callable[[float], Release]) -> Observe:
    def observe(canary: float, stream: Stream) -> Sight:
        release = make(canary)
        return Sight(seen(release.tensors(stream)), (release.charge("audit", 1, "update"),))

    return observe


# --- releases ---------------------------------------------------------------------------------------------------------


def _counted(canary: float, stream: Stream) -> Sight:
    """An update with the bit whether it was within the clip norm; left out, the bit is neither yes nor no."""
    release = CountedChange({"w": 3.0 * canary * DIRECTION}, 1.0, NOISE)
    released = release.tensors(stream)
    within = float(released.pop(COUNT)[0]) - (0.5 if canary == 0.0 else 0.0)
    both = float(released["w"] @ DIRECTION) - 2.0 * COUNT_SHARE**2 * joint_norm(1.0) * within
    figures = seen(released, {"count": within, "both": both})
    return Sight(figures, (release.charge("audit", 1, "update"),))


def _laplaced(canary: float) -> Release:
    vector = np.zeros(ELEMENTS)
    vector[0] = 0.5 * canary
    return Laplaced("v", vector, sensitivity=1.0, epsilon=1.0)


def _mesh(canary: float) -> Release:
    """Parameters after a step in which one sample's gradient is at its bound, on the one side or on the other."""
    clip, batch, rate = 1.0, 4, 0.1
    gradient = np.zeros(ELEMENTS)
    gradient[0] = canary * clip / batch
    state = mixing.MeshState(-rate * gradient, gradient, rate, batch)
    scale = mixing.noise_scale(state, rate, 1.0, clip=clip)
    return Laplaced("v", state.parameters, scale * 1.0, 1.0)


def _market(canary: float) -> Release:
    """Steps on sums of clipped gradients, in which one example lies at its bound."""
    rho, steps = 0.5, LocalSteps(steps=2, learning_rate=1.0, clip_norm=1.0)
    received: Arrays = {"w": np.zeros(ELEMENTS, np.float32)}
    return Descent(rho, lambda noised: noised_descent(Guarded(_Learner(canary)), received, steps, rho, noised))


# --- strategies -------------------------------------------------------------------------------------------------------


@dataclass
class _Learner:
    """A learner that moves the model along the canary, or beyond all numbers; its loss on its data tells the canary."""

    canary: float
    length: float = 3.0
    samples: int = 3
    state: dict[str, NDArray[Any]] = field(default_factory=dict)

    def load(self, tensors: Tensors) -> None:
        self.state = {name: value.copy() for name, value in tensors.items()}

    def evaluate(self) -> dict[str, float]:
        return {"loss": 2.0 - self.canary}

    def train(self, instructions: Instructions, seed: int) -> None:
        if self.canary:
            self.state["w"] = (self.state["w"] + self.length * self.canary * DIRECTION).astype(np.float32)

    def parameters(self) -> Tensors:
        return self.state

    def trained(self) -> tuple[str, ...]:
        return ("w",)

    def loss_of(self, indices: NDArray[Any]) -> float:
        return 2.0 - self.canary

    def gradient_sum(self, indices: NDArray[Any], bound: float, norm: str = "l2") -> Tensors:
        return {"w": self.canary * bound * DIRECTION}


@dataclass(frozen=True, slots=True)
class _Watched(RoundContext):
    """A round whose releases are noted and not stored: the ledger is audited apart."""

    made: list[Charge] = field(default_factory=list)

    def release(self, release: Release, purpose: str = "", number: int | None = None) -> Arrays:
        self.made.append(release.charge(self.work.task_id, self.work.round, purpose or self.purpose))
        return release.tensors(self.noise())

    def charges(self, number: int | None = None) -> tuple[Charge, ...]:
        return tuple(self.made)

    def model(self, index: int = 0) -> Arrays:
        return {"w": np.zeros(ELEMENTS, np.float32)}


def work_item(**changes: Any) -> WorkItem:
    """Work of one round."""
    values: dict[str, Any] = dict.fromkeys(WorkItem.__slots__, 0)
    values |= {"task_id": "audit", "round": 1, "attempt": 1, "role": "solo", "rounds": 1, "privacy_unit": "device"}
    values |= {"model_digests": ("m",), "model_lines": (0,), "previous_digests": (), "peers": (), "noised": True}
    values |= {"topology": "star", "privacy": "uniform", "incentive": "none", "parameters": {}, "self_weight": 1.0}
    values |= {"training": {"epochs": 1, "clip_norm": 1.0}, "noise_multiplier": NOISE, "batch_size": 1, "sum": ""}
    return WorkItem(**(values | changes))


def _prepared(prepare: Callable[[RoundContext], Delivery], work: WorkItem, length: float = 3.0) -> Observe:
    def observe(canary: float, stream: Stream) -> Sight:
        absent = cast(Any, None)
        context = _Watched(
            work, "dev_1", absent, _Learner(canary, length), 1, absent, absent, {}, absent, absent, absent, 1,
            noise=lambda: stream,
        )  # fmt: skip
        try:
            delivery = prepare(context)
        except Declined:  # is seen, too, and costs nothing
            return Sight({"declined": 1.0}, (gaussian_charge("audit", 1, "update", "device", NOISE),))
        assert delivery.tensors is not None
        return Sight(seen(delivery.tensors, delivery.metrics), delivery.privacy)

    return observe


# --- sums -------------------------------------------------------------------------------------------------------------


def _secure(counts: bool) -> Observe:
    """The opened sum of as many devices as must be honest, one of them the canary's; the others' changes are zeros."""
    honest, norm, elements = 5, joint_norm(1.0) if counts else 1.0, ELEMENTS + counts
    grid = choose_grid(10, elements, norm, NOISE, honest)
    terms = Terms(
        "audit", 1, 1, 0, 1, "", elements, grid.bits, grid.scale, 10, 7, honest, repr(norm), repr(NOISE), "1.0", "",
        threshold=2, quorum=3, clerks=(),
    )  # fmt: skip

    def observe(canary: float, stream: Stream) -> Sight:
        opened = sum(
            contribution(change, terms, 1.0, stream, counts)
            for change in [3.0 * canary * DIRECTION, *(np.zeros(ELEMENTS) for _ in range(honest - 1))]
        )
        values = np.asarray(opened, dtype=np.float64)
        if counts and canary == 0.0:  # left out is zeros in every element, the count's too
            values[-1] -= amplitude(norm, terms.scale)
        figures = {"value": float(values[:ELEMENTS] @ DIRECTION) / grid.bound}
        if counts:
            figures["count"] = float(values[-1]) / grid.bound
            figures["both"] = float(values[:ELEMENTS] @ DIRECTION - COUNT_SHARE * values[-1]) / grid.bound
        return Sight(figures, (gaussian_charge("audit", 1, "sum", "device", terms.noise),))

    return observe


# --- the ledger -------------------------------------------------------------------------------------------------------

ASKED = 40
"""How often the platform asks for the same round, each time with other words."""


def _bound_to_bytes() -> Observe:
    """All that a device tells for one round of a platform that varies its work, against all that it was charged."""
    made: list[tuple[int, tuple[Charge, ...]]] = []

    def change(canary: float) -> Change:
        return Change({"w": 3.0 * canary * DIRECTION}, 1.0, 2.0 * NOISE)

    def observe(canary: float, stream: Stream) -> Sight:
        if not made:
            made.append(_released_and_charged(change(1.0)))
        releases, charges = made[0]
        values = [seen(change(canary).tensors(stream))["value"] for _ in range(releases)]
        return Sight({"mean of all releases": float(np.mean(values))}, charges)

    return observe


def _released_and_charged(release: Release) -> tuple[int, tuple[Charge, ...]]:
    """How many different releases the device's own code lets out for one round, and what its ledger then holds."""
    absent = cast(Any, None)
    with tempfile.TemporaryDirectory() as folder:
        home = DeviceHome(Path(folder))
        ledger, streams = home.ledger(LIMIT), iter(range(ASKED * 2))
        released = set()
        for number in range(ASKED):
            work = work_item(model_digests=(f"m{number}",))
            context = RoundContext(
                work, "dev_1", absent, absent, 1, absent, ledger, {}, absent, home.outbox, absent, 1,
                noise=lambda: SeededStream("ledger", next(streams)),
            )  # fmt: skip
            for _ in range(2):  # the same work twice is the same bytes
                released.add(context.release(release)["w"].tobytes())
        return len(released), tuple(entry.charge for entry in ledger.history())


MECHANISMS: dict[str, Observe] = {
    "gaussian": _released(lambda canary: Change({"w": 3.0 * canary * DIRECTION}, 1.0, NOISE)),
    "laplace": _released(_laplaced),
    "survey": _released(lambda canary: Answer("value", 1.0 if canary > 0.0 else 0.0, NOISE**2)),
    "adaptive clip": _counted,
    "star": _prepared(lambda context: Star().prepare(context), work_item()),
    "clusters": _prepared(lambda context: Clusters().prepare(context), work_item(topology="clusters", privacy="trust")),
    "star that diverges": _prepared(lambda context: Star().prepare(context), work_item(), math.inf),
    "mesh": _released(_mesh),
    "market": _released(_market),
    "secure sum": _secure(counts=False),
    "secure sum with count": _secure(counts=True),
    "ledger": _bound_to_bytes(),
}

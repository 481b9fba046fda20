"""What a device has given away: one charge per release, and the ε that many of them add up to.

Releases of different kinds meet in one `Loss`, a small sum that does not grow with their number. Gaussian releases are
kept apart from the rest because they compose to one Gaussian release, whose ε is known exactly; everything else is
composed by Rényi orders. Both bounds are valid and the smaller counts. Composition is sound for releases chosen
adaptively, each on the same data.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.privacy import renyi, zcdp
from coterie.privacy.gaussian import exact_epsilon
from coterie.privacy.preconditions import check_delta, check_not_negative, check_positive, check_rate

Unit: TypeAlias = Literal["example", "device"]
"""What one guarantee hides: a single training example, or everything a device holds."""

Adjacency: TypeAlias = Literal["left-out", "replaced"]
"""Which two worlds a guarantee compares: the unit's contribution against none, or against any other."""

Mechanism: TypeAlias = Literal["gaussian", "sampled-gaussian", "zcdp", "laplace", "approximate", "raw"]


@dataclass(frozen=True, slots=True)
class Charge:
    """One release of a device's data to somebody, and what it costs.

    Make one with the constructors below, which ask for exactly what each mechanism needs. A task, round and purpose
    (what was released: "update", "letter", "answer") name a release once and for ever.

    Attributes:
        task, round, purpose: the name of the release; round ≥ 0.
        mechanism: how it was protected.
        unit: what the clipping bounded, hence what is protected.
        adjacency: whether its loss is that of a unit left out or of one replaced.
        rho: zCDP of "gaussian" and "zcdp".
        epsilon, delta: of "laplace" (δ = 0) and "approximate".
        multiplier: noise multiplier of "sampled-gaussian", and of "gaussian" where it was given.
        rate: chance with which "sampled-gaussian" uses a record.
        steps: how many such releases this stands for.
        digest: SHA-256 of the bytes released, hexadecimal; empty where the name alone says which they are.
    """

    task: str
    round: int
    purpose: str
    mechanism: Mechanism
    unit: Unit
    adjacency: Adjacency
    rho: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0
    multiplier: float = 0.0
    rate: float = 1.0
    steps: int = 1
    digest: str = ""

    def __post_init__(self) -> None:
        if not self.task or not self.purpose or self.round < 0:
            raise ValueError(
                f"a charge needs a task, a purpose and a round ≥ 0, got {self.task!r}, {self.purpose!r}, {self.round}"
            )
        if self.unit not in ("example", "device"):
            raise ValueError(f"unit must be 'example' or 'device', got {self.unit!r}")
        if self.adjacency not in ("left-out", "replaced"):
            raise ValueError(f"adjacency must be 'left-out' or 'replaced', got {self.adjacency!r}")
        check_not_negative("rho", self.rho)
        check_not_negative("epsilon", self.epsilon)
        if not 0.0 <= self.delta < 1.0:
            raise ValueError(f"a charge's delta must lie in [0, 1), got {self.delta}")
        if self.steps < 1:
            raise ValueError(f"a charge covers at least one step, got {self.steps}")


@dataclass(frozen=True, slots=True)
class Loss:
    """Composed loss of any number of releases; `plus` composes, `epsilon` converts.

    Attributes:
        gaussian_rho: Σ 1/(2σ²) of the Gaussian releases.
        orders: Rényi loss of all the others at `renyi.ORDERS`.
        pure: Σ ε of the others, infinite as soon as one of them is not ε-private for any ε.
        delta: Σ δ of releases known only by (ε, δ).
    """

    gaussian_rho: float
    orders: NDArray[np.float64]
    pure: float
    delta: float

    def plus(self, other: Loss) -> Loss:
        """Loss of both."""
        return Loss(
            self.gaussian_rho + other.gaussian_rho,
            self.orders + other.orders,
            self.pure + other.pure,
            self.delta + other.delta,
        )

    def epsilon(self, delta: float) -> float:
        """Smallest ε these releases are known to give at δ; infinite when their own δ already reach it."""
        remaining = check_delta(delta) - self.delta
        if remaining <= 0.0:
            return math.inf
        by_orders = renyi.epsilon_of_loss(renyi.gaussian_loss(self.gaussian_rho) + self.orders, remaining)
        gaussian = exact_epsilon(zcdp.multiplier_of_rho(self.gaussian_rho), remaining)
        return min(by_orders, gaussian + self.pure)


NOTHING = Loss(0.0, np.zeros_like(renyi.ORDERS), 0.0, 0.0)


def gaussian_charge(
    task: str, round: int, purpose: str, unit: Unit, multiplier: float, adjacency: Adjacency = "left-out"
) -> Charge:
    """Gaussian noise of this multiplier (deviation / L2 sensitivity) on one release."""
    rho = zcdp.rho_of_multiplier(multiplier)
    return Charge(task, round, purpose, "gaussian", unit, adjacency, rho=rho, multiplier=multiplier)


def priced_charge(
    task: str, round: int, purpose: str, rho: float, unit: Unit = "example", adjacency: Adjacency = "replaced"
) -> Charge:
    """A release of Gaussian noise known by its ρ, such as a budget sold to the platform."""
    return Charge(task, round, purpose, "gaussian", unit, adjacency, rho=rho)


def zcdp_charge(
    task: str, round: int, purpose: str, unit: Unit, rho: float, adjacency: Adjacency = "replaced"
) -> Charge:
    """Any ρ-zCDP release, Gaussian or not."""
    return Charge(task, round, purpose, "zcdp", unit, adjacency, rho=rho)


def sampled_gaussian_charge(
    task: str, round: int, purpose: str, unit: Unit, multiplier: float, rate: float, steps: int = 1
) -> Charge:
    """`steps` releases with Gaussian noise, each on records drawn afresh and independently with chance `rate`.

    Its loss is that of a record left out.
    """
    check_positive("noise multiplier", multiplier)
    check_rate(rate)
    return Charge(
        task, round, purpose, "sampled-gaussian", unit, "left-out", multiplier=multiplier, rate=rate, steps=steps
    )


def laplace_charge(
    task: str, round: int, purpose: str, unit: Unit, epsilon: float, adjacency: Adjacency = "replaced"
) -> Charge:
    """Laplace noise of scale (L1 sensitivity)/ε."""
    return Charge(task, round, purpose, "laplace", unit, adjacency, epsilon=check_positive("epsilon", epsilon))


def approximate_charge(
    task: str,
    round: int,
    purpose: str,
    unit: Unit,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "left-out",
) -> Charge:
    """A release known only to be (ε, δ)-private; δ = 0 for pure privacy. Its δ is taken from the δ of the total."""
    return Charge(task, round, purpose, "approximate", unit, adjacency, epsilon=epsilon, delta=delta)


def raw_charge(task: str, round: int, purpose: str, unit: Unit = "device") -> Charge:
    """A release without noise, to somebody the owner trusts; no ε describes it, so its loss is infinite."""
    return Charge(task, round, purpose, "raw", unit, "replaced", rho=math.inf)


def adjacency_meant(mechanism: str, unit: str) -> Adjacency:
    """Return the adjacency of a claim that does not name one.

    Priced and planned budgets and the mesh's Laplace noise are calibrated to a replaced example, a clipped model change
    to a left-out device. (Planned budgets of whole devices are calibrated to a replaced device; taking them for left
    out counts them too high, never too low.)
    """
    replaced = mechanism in ("laplace", "zcdp", "raw") or (mechanism, unit) == ("gaussian", "example")
    return "replaced" if replaced else "left-out"


def loss_of(charge: Charge) -> Loss:
    """Loss of one charge, as its own adjacency has it."""
    match charge.mechanism:
        case "gaussian" | "raw":
            return Loss(charge.rho * charge.steps, NOTHING.orders, 0.0, 0.0)
        case "zcdp":
            rho = charge.rho * charge.steps
            return Loss(0.0, renyi.gaussian_loss(rho), math.inf if rho > 0.0 else 0.0, 0.0)
        case "sampled-gaussian":
            orders = renyi.sampled_gaussian_loss(charge.multiplier, charge.rate) * charge.steps
            return Loss(0.0, orders, math.inf, 0.0)
        case "laplace":
            orders = renyi.laplace_loss(charge.epsilon) * charge.steps
            return Loss(0.0, orders, charge.epsilon * charge.steps, 0.0)
        case "approximate":
            orders = renyi.pure_loss(charge.epsilon) * charge.steps
            return Loss(0.0, orders, charge.epsilon * charge.steps, charge.delta * charge.steps)


def replaced(charge: Charge) -> Charge:
    """The charge for a contribution replaced by any other, which is one left out and another put in.

    Twice the distance: ρ times 4 (of any ρ-zCDP release: Bun and Steinke, Proposition 1.9), ε times 2; (ε, δ) becomes
    (2ε, (1 + e^ε)δ). A sample that may hold either of two records is no worse than one that surely does, since the
    divergence of mixtures is at most that of their parts: its loss is that of the unsampled release.
    """
    if charge.adjacency == "replaced":
        return charge
    twice = replace(charge, adjacency="replaced")
    match charge.mechanism:
        case "gaussian" | "zcdp":
            return replace(twice, rho=4.0 * charge.rho, multiplier=0.5 * charge.multiplier)
        case "sampled-gaussian":
            rho = 4.0 * zcdp.rho_of_multiplier(charge.multiplier)
            return replace(twice, mechanism="gaussian", rho=rho, multiplier=0.5 * charge.multiplier, rate=1.0)
        case "laplace":
            return replace(twice, epsilon=2.0 * charge.epsilon)
        case "approximate":
            delta = (1.0 + math.exp(min(charge.epsilon, 700.0))) * charge.delta
            return replace(twice, epsilon=2.0 * charge.epsilon, delta=min(delta, 1.0 - 2.0**-53))
        case "raw":
            return twice


@dataclass(frozen=True, slots=True)
class Question:
    """What an ε is asked about: a unit, and whether it is left out or replaced by any other.

    Without an adjacency it is the usual one: a whole device left out, one example replaced.
    """

    unit: Unit
    adjacency: Adjacency

    @classmethod
    def of(cls, unit: Unit, adjacency: Adjacency | None = None) -> Question:
        """The question about a unit."""
        return cls(unit, adjacency or ("left-out" if unit == "device" else "replaced"))

    def loss(self, charge: Charge) -> Loss:
        """What a charge adds to the answer.

        Like goes with like; what was calibrated for a unit replaced also covers one left out, at no less. Hiding one
        example says nothing about the rest of a device: infinite. A device whose contribution is hidden hides each of
        its examples, but an example more or less turns one contribution into another: the device is replaced.
        """
        if (charge.unit, self.unit) == ("example", "device"):
            return Loss(math.inf, NOTHING.orders, 0.0, 0.0)
        if self.adjacency == "left-out" and charge.unit == self.unit:
            return loss_of(charge)
        return loss_of(replaced(charge))

    def __str__(self) -> str:
        return _QUESTIONS[self.unit, self.adjacency]


_QUESTIONS: dict[tuple[Unit, Adjacency], str] = {
    ("device", "left-out"): "the whole device left out",
    ("device", "replaced"): "the whole device replaced by any other",
    ("example", "left-out"): "one example left out",
    ("example", "replaced"): "one example replaced by any other",
}
QUESTIONS = tuple(Question(unit, adjacency) for unit, adjacency in _QUESTIONS)


def total(charges: Iterable[Charge], delta: float, unit: Unit = "example", adjacency: Adjacency | None = None) -> float:
    """ε of all charges together at δ, for the unit asked about (`Question.of`); no charges give 0.

    Examples:
        >>> rounds = [gaussian_charge("digits", number, "update", "device", 4.0) for number in range(16)]
        >>> round(total(rounds, 1e-5, "device"), 3)  # sixteen rounds of multiplier 4 are one of multiplier 1
        4.377
        >>> round(total(rounds, 1e-5, "device", "replaced"), 3)  # of multiplier 1/2, were the device another
        9.997
    """
    question, composed = Question.of(unit, adjacency), NOTHING
    for charge in charges:
        composed = composed.plus(question.loss(charge))
    return composed.epsilon(delta)


@dataclass(frozen=True, slots=True)
class Answer:
    """What charges have cost, for what they all hide, beside the price of the same were it replaced."""

    question: Question
    epsilon: float
    epsilon_replaced: float

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return f"no ε holds for {self.question}: something left without provable noise"
        said = f"ε = {self.epsilon:.4g} for {self.question}"
        if self.question.adjacency == "replaced":
            return said
        other = Question(self.question.unit, "replaced")
        return f"{said}; {self.epsilon_replaced:.4g} for {other} (4 × ρ)"


def answer(charges: Collection[Charge], delta: float) -> Answer:
    """ε of all charges at δ for the most that every one of them hides."""
    unit: Unit = "device" if all(charge.unit == "device" for charge in charges) else "example"
    left_out = unit == "device" and any(charge.adjacency == "left-out" for charge in charges)
    question = Question(unit, "left-out" if left_out else "replaced")
    return Answer(question, total(charges, delta, unit, question.adjacency), total(charges, delta, unit, "replaced"))

"""Privacy accounting: one charge per release, and the ε that many of them compose to.

Releases of different kinds add up in one `Loss`, whose size does not depend on their number. Gaussian releases are
summed separately because they compose to one Gaussian release, whose ε is known exactly; all others are composed by
Rényi orders. Both bounds are valid and the smaller counts. Composition is sound for releases chosen adaptively, each on
the same data.
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
from coterie.privacy.preconditions import check_delta, check_not_negative, check_positive

Unit: TypeAlias = Literal["example", "device"]
"""What one guarantee hides: a single training example, or everything a device holds."""

Adjacency: TypeAlias = Literal["left-out", "replaced"]
"""Which two worlds a guarantee compares: the unit's contribution against none, or against any other."""

Mechanism: TypeAlias = Literal["gaussian", "zcdp", "laplace", "raw"]


@dataclass(frozen=True, slots=True)
class Charge:
    """One release of a device's data, and what it costs.

    Make one with the constructors below, which ask for exactly what each mechanism needs. Task, round and purpose
    ("update", "letter", "answer") name a release for ever.

    Attributes:
        task, round, purpose: the name of the release; round ≥ 0.
        mechanism: how it was protected.
        unit: what the clipping bounded, hence what is protected.
        adjacency: whether its loss is that of a unit left out or of one replaced.
        rho: zCDP of "gaussian" and "zcdp".
        epsilon: of "laplace".
        multiplier: noise multiplier of "gaussian" where it was given.
        steps: number of such releases that this charge stands for.
        digest: SHA-256 of the released bytes, hexadecimal; empty where the name alone identifies them.
    """

    task: str
    round: int
    purpose: str
    mechanism: Mechanism
    unit: Unit
    adjacency: Adjacency
    rho: float = 0.0
    epsilon: float = 0.0
    multiplier: float = 0.0
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
        if self.steps < 1:
            raise ValueError(f"a charge covers at least one step, got {self.steps}")


@dataclass(frozen=True, slots=True)
class Loss:
    """Composed loss of any number of releases; `plus` composes, `epsilon` converts.

    Attributes:
        gaussian_rho: Σ 1/(2σ²) of the Gaussian releases.
        orders: Rényi loss of all the others at `renyi.ORDERS`.
        pure: Σ ε of the others, infinite as soon as one of them is not ε-private for any ε.
    """

    gaussian_rho: float
    orders: NDArray[np.float64]
    pure: float

    def plus(self, other: Loss) -> Loss:
        """Loss of both."""
        return Loss(self.gaussian_rho + other.gaussian_rho, self.orders + other.orders, self.pure + other.pure)

    def epsilon(self, delta: float) -> float:
        """Smallest ε these releases are known to give at δ."""
        by_orders = renyi.epsilon_of_loss(renyi.gaussian_loss(self.gaussian_rho) + self.orders, check_delta(delta))
        gaussian = exact_epsilon(zcdp.multiplier_of_rho(self.gaussian_rho), delta)
        return min(by_orders, gaussian + self.pure)


NOTHING = Loss(0.0, np.zeros_like(renyi.ORDERS), 0.0)


def gaussian_charge(
    task: str, round: int, purpose: str, unit: Unit, multiplier: float, adjacency: Adjacency = "left-out"
) -> Charge:
    """Gaussian noise of this multiplier (deviation / L2 sensitivity) on one release."""
    rho = zcdp.rho_of_multiplier(multiplier)
    return Charge(task, round, purpose, "gaussian", unit, adjacency=adjacency, rho=rho, multiplier=multiplier)


def priced_charge(
    task: str, round: int, purpose: str, rho: float, unit: Unit = "example", adjacency: Adjacency = "replaced"
) -> Charge:
    """A release of Gaussian noise known by its ρ, such as a budget sold to the platform."""
    return Charge(task, round, purpose, "gaussian", unit, adjacency=adjacency, rho=rho)


def zcdp_charge(
    task: str, round: int, purpose: str, unit: Unit, rho: float, adjacency: Adjacency = "replaced"
) -> Charge:
    """Any ρ-zCDP release, Gaussian or not."""
    return Charge(task, round, purpose, "zcdp", unit, adjacency=adjacency, rho=rho)


def laplace_charge(
    task: str, round: int, purpose: str, unit: Unit, epsilon: float, adjacency: Adjacency = "replaced"
) -> Charge:
    """Laplace noise of scale (L1 sensitivity)/ε."""
    check_positive("epsilon", epsilon)
    return Charge(task, round, purpose, "laplace", unit, adjacency=adjacency, epsilon=epsilon)


def raw_charge(task: str, round: int, purpose: str, unit: Unit = "device") -> Charge:
    """A release without noise, to a recipient that the owner trusts; no ε describes it, so its loss is infinite."""
    return Charge(task, round, purpose, "raw", unit, adjacency="replaced", rho=math.inf)


def adjacency_meant(mechanism: str, unit: str) -> Adjacency:
    """Return the adjacency of a claim that does not name one.

    Priced and planned budgets and the mesh's Laplace noise are calibrated to a replaced example, a clipped model change
    to a left-out device. Planned budgets of whole devices are calibrated to a replaced device; counting them as left
    out overstates their cost.
    """
    replaced = mechanism in ("laplace", "zcdp", "raw") or (mechanism, unit) == ("gaussian", "example")
    return "replaced" if replaced else "left-out"


def loss_of(charge: Charge) -> Loss:
    """Loss of one charge, for the charge's own adjacency."""
    match charge.mechanism:
        case "gaussian" | "raw":
            return Loss(charge.rho * charge.steps, NOTHING.orders, 0.0)
        case "zcdp":
            rho = charge.rho * charge.steps
            return Loss(0.0, renyi.gaussian_loss(rho), math.inf if rho > 0.0 else 0.0)
        case "laplace":
            orders = renyi.laplace_loss(charge.epsilon) * charge.steps
            return Loss(0.0, orders, charge.epsilon * charge.steps)


def replaced(charge: Charge) -> Charge:
    """Convert a charge to one for a contribution replaced by any other: one left out, another put in.

    Twice the distance: ρ times 4 (of any ρ-zCDP release: Bun and Steinke, Proposition 1.9), ε times 2.
    """
    if charge.adjacency == "replaced":
        return charge
    twice = replace(charge, adjacency="replaced")
    match charge.mechanism:
        case "gaussian" | "zcdp":
            return replace(twice, rho=4.0 * charge.rho, multiplier=0.5 * charge.multiplier)
        case "laplace":
            return replace(twice, epsilon=2.0 * charge.epsilon)
        case "raw":
            return twice


@dataclass(frozen=True, slots=True)
class Question:
    """The pair of worlds that an ε compares: a unit, left out or replaced by any other.

    The usual adjacency is a whole device left out, one example replaced.
    """

    unit: Unit
    adjacency: Adjacency

    @classmethod
    def of(cls, unit: Unit, adjacency: Adjacency | None = None) -> Question:
        """The question about a unit, with the usual adjacency by default."""
        return cls(unit, adjacency or ("left-out" if unit == "device" else "replaced"))

    def loss(self, charge: Charge) -> Loss:
        """Return what a charge adds to the answer.

        Noise calibrated to a replaced unit also covers a unit left out. Noise that hides one example does not hide the
        rest of the device, so its loss for a device is infinite. Noise that hides a device hides each of its examples;
        one example more or less turns the contribution into another, which is the device replaced.
        """
        if (charge.unit, self.unit) == ("example", "device"):
            return Loss(math.inf, NOTHING.orders, 0.0)
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
    """Compose all charges and return their ε at δ for a unit (`Question.of`); no charges give 0.

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
    """ε of charges for the most that all of them hide, and the ε of the same unit replaced."""

    question: Question
    epsilon: float
    epsilon_replaced: float

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return f"no ε holds for {self.question}: something left without provable noise"
        text = f"ε = {self.epsilon:.4g} for {self.question}"
        if self.question.adjacency == "replaced":
            return text
        other = Question(self.question.unit, "replaced")
        return f"{text}; {self.epsilon_replaced:.4g} for {other} (4 × ρ)"


def answer(charges: Collection[Charge], delta: float) -> Answer:
    """Return ε of all charges at δ for the most that every one of them hides."""
    unit: Unit = "device" if all(charge.unit == "device" for charge in charges) else "example"
    left_out = unit == "device" and any(charge.adjacency == "left-out" for charge in charges)
    question = Question(unit, "left-out" if left_out else "replaced")
    return Answer(question, total(charges, delta, unit, question.adjacency), total(charges, delta, unit, "replaced"))

"""Updates nobody honest would send where privacy is sold, and those that stand out among the rest.

A device that sells a budget ρ claims that its update was clipped and carries the noise that ρ buys. Both bound the
update's norm, so a norm beyond the bound is refused: it is not averaged, not paid, and held against the device. Within
the bound the platform cannot tell honest noise from garbage, which is why the bound is what protects the model; a norm
that is merely unusual is flagged for people to look at and paid all the same, because devices differ honestly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from coterie.market import CHANCE_OF_INJUSTICE, LocalSteps
from coterie.privacy.zcdp import multiplier_of_rho, rho_of_multiplier
from coterie.survey import LARGEST_DEVIATIONS
from services.aggregation.domain.accumulator import WINDOW, Read
from services.aggregation.domain.layout import DTYPES, Layout
from services.aggregation.domain.records import Delivery, Participation
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.errors import BadUpdate

NORM = "update_norm"
"""Metric of a delivered update that the platform measures itself."""
FEWEST = 5
DEVIATIONS = 5.0
_LEAST_SPREAD = 0.05
_TO_DEVIATION = 1.4826
_ROUNDING = 1e-3


def sells_gradients(specification: TaskSpecification) -> bool:
    """Whether devices sell noised gradients straight to the platform."""
    return (specification.topology, specification.privacy, specification.incentive) == ("star", "priced", "stackelberg")


def sells_answers(specification: TaskSpecification) -> bool:
    """Whether devices sell noised answers to a question."""
    return specification.incentive == "correlated"


def norm_of(layout: Layout, read: Read) -> float:
    """L2 norm of a stored update, a window at a time; NaN or infinite when it holds such values."""
    squares = 0.0
    for tensor in layout.tensors:
        dtype = DTYPES[tensor.dtype]
        for start in range(0, tensor.elements, WINDOW):
            count = min(WINDOW, tensor.elements - start)
            piece = np.frombuffer(read(tensor.start + start * dtype.itemsize, count * dtype.itemsize), dtype)
            values = piece.astype(np.float64)
            squares += float(values @ values)
    return math.sqrt(squares)


def check_norm(specification: TaskSpecification, delivery: Delivery, samples: int, elements: int, norm: float) -> None:
    """Refuses an update whose norm the claimed budget (or variance) rules out."""
    if delivery.form != "mean":
        raise BadUpdate(f"a task that buys privacy takes updates of the form mean, not {delivery.form!r}")
    if sells_gradients(specification):
        least = LocalSteps.of(specification.training).least_budget
        if delivery.budget < least:
            raise BadUpdate(f"a budget of {delivery.budget:g} is below the least one of {least:g}; decline the round")
    most = largest_norm(specification, delivery.budget, samples, elements)
    if norm > most:  # NaN passes here: folding refuses it and says where it is
        raise BadUpdate(
            f"the update's norm of {norm:.4g} is beyond the {most:.4g} that clipping and a claimed "
            f"{'variance' if sells_answers(specification) else 'budget'} of {delivery.budget:.4g} allow"
        )


def check_noise_left(
    specification: TaskSpecification, seat_multiplier: float, delivery: Delivery, elements: int, norm: float
) -> None:
    """Refuses a device alone in clusters whose update's norm the budget it claims to have sold rules out.

    It was clipped to S and carries the noise of ρ₀ + ρ, its seat's and what was sold: |Δ| ≤ S(1 + σ(√d + t)), exceeded
    with chance exp(−t²/2) at most.
    """
    if delivery.form != "mean":
        raise BadUpdate(f"a device alone hands in its own update in the form mean, not {delivery.form!r}")
    bound = float(specification.training.get("clip_norm", 1.0))
    multiplier = multiplier_of_rho(rho_of_multiplier(seat_multiplier) + delivery.budget)
    tail = math.sqrt(elements) + math.sqrt(2.0 * math.log(1.0 / CHANCE_OF_INJUSTICE))
    most = bound * (1.0 + multiplier * tail) * (1.0 + _ROUNDING)
    if norm > most:  # NaN passes here: folding refuses it and says where it is
        raise BadUpdate(
            f"the update's norm of {norm:.4g} is beyond the {most:.4g} that clipping and a sold budget of "
            f"{delivery.budget:.4g} allow"
        )


def largest_norm(specification: TaskSpecification, budget: float, samples: int, elements: int) -> float:
    """The norm an honest update stays within."""
    if sells_answers(specification):
        return 1.0 + LARGEST_DEVIATIONS * math.sqrt(budget)
    return LocalSteps.of(specification.training).largest_change(budget, samples, elements)


def outliers(specification: TaskSpecification, everybody: Sequence[Participation], elements: int) -> dict[str, str]:
    """Why each delivered update whose norm stands out does so, by device.

    Norms are compared as shares of what each device's own budget and samples allow, by their median and the median
    distance from it, which a minority cannot move far.
    """
    shares = {
        p.device_id: p.metrics[NORM] / largest_norm(specification, p.budget, p.samples, elements)
        for p in everybody
        if p.state == "delivered" and NORM in p.metrics
    }
    if len(shares) < FEWEST:
        return {}
    values = np.array(list(shares.values()))
    middle = float(np.median(values))
    spread = max(_TO_DEVIATION * float(np.median(np.abs(values - middle))), _LEAST_SPREAD * middle)
    return {
        device: f"its norm is {share:.3g} of what its budget allows, {abs(share - middle) / spread:.1f} deviations "
        f"from the median of {middle:.3g}; it was averaged and paid, look at it"
        for device, share in shares.items()
        if abs(share - middle) > DEVIATIONS * spread
    }

"""Budget sale: the device decides how much privacy to sell at the quoted price, and trains with exactly that noise.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks.

The owner's costs come from the device's private settings and are never sent; a device without costs draws them once and
stores them. The device sends the budget sold, the noised change of the model, and metrics of samples that the owner
calls public, because the noise protects no other samples.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import ClassVar

import numpy as np

from coterie.agent.computing_cost import Effort, Meter, effort_of, tariff_of
from coterie.agent.report import Delivery
from coterie.errors import Declined
from coterie.learning.learner import Guarded
from coterie.learning.local_steps import LocalSteps
from coterie.learning.models import Flat
from coterie.parameters.task import OfferParameters
from coterie.privacy.budget_choice import PrivateCosts, decide, utility
from coterie.privacy.releases import Arrays, Descent, Queried
from coterie.privacy.zcdp import multiplier_of_rho
from coterie.secure_sums.contribution import purpose
from coterie.strategies import masked
from coterie.strategies.context import RoundContext

MICRO = 1_000_000
QUADRATIC, LINEAR = (0.8, 1.2), (0.02, 0.06)
"""Ranges of the costs drawn for a device that names none ([MPPFL] settings)."""
PROBED_SAMPLES = 32
"""Samples that a device looks at to learn what computing takes, before it sells for the first time."""


class BudgetSale:
    """Sells a zCDP budget and delivers noised gradient steps for it; masked in secure sums, without more noise."""

    serves: ClassVar[tuple[tuple[str, str, str], ...]] = (("star", "priced", "stackelberg"),)
    masks: ClassVar[bool] = True

    def prepare(self, context: RoundContext) -> Delivery:
        """Decides, charges the device's own ledger, trains; declines when selling is not worth it."""
        try:
            steps = LocalSteps.of(context.work.training)
        except (TypeError, ValueError) as error:
            raise Declined(f"the task's training parameters are invalid: {error}") from error
        learner = context.learner
        learner.trained()  # a learner without gradients declines before anything is decided
        received = context.model()
        learner.load(received)
        budget = choose_budget(context, steps)
        session = masked.accept(context, received) if context.work.sum else None

        def descend(noised: Queried) -> Arrays:
            with Meter() as meter:
                change = noised_descent(learner, received, steps, budget, noised=noised, seed=context.seed)
            keep_effort(context, meter.effort(learner.samples * steps.steps))
            return change

        descent = Descent(budget, descend)
        if session is not None:
            return masked.deliver_charged(
                context, session, lambda: context.release(descent, purpose(session.terms)), budget
            )
        metrics = context.figures()
        change = context.release(descent)
        return Delivery(
            change,
            float(context.samples),
            metrics=metrics,
            public_metrics=context.public_metrics,
            budget=budget,
            privacy=context.charges(),
        )


def choose_budget(context: RoundContext, steps: LocalSteps) -> float:
    """The budget that is best for the owner, but no more than is paid for; declines rounds that would cost it."""
    work = context.work
    if work.price_microcredits <= 0:
        raise Declined("no price is offered for privacy in this round")
    price = work.price_microcredits / MICRO
    # The platform quotes αR, so the weight here is 1.
    costs = with_computing(context, costs_of(context), steps)
    decision = decide(price, work.external_risk, costs, 1.0, least_utility=0.0)
    most = OfferParameters.of(work.parameters).most_microcredits
    budget = min(decision.budget, (math.inf if most is None else most) / work.price_microcredits)
    if not decision.joins or utility(price, budget, work.external_risk, costs, 1.0) < 0.0:
        raise Declined("the price is too low for this device")
    if budget < steps.least_budget:
        raise Declined("this device would sell less than the task takes")
    return budget


def costs_of(context: RoundContext) -> PrivateCosts:
    """The owner's costs, from the private settings; drawn and kept there when there are none."""
    given = context.private.get("costs")
    if given is None:
        quadratic, linear = (
            low + (high - low) * float(word) / 2.0**64
            for (low, high), word in zip((QUADRATIC, LINEAR), context.noise().words(2), strict=True)
        )
        given = {"quadratic": quadratic, "linear": linear, "fixed": 0.0}
        context.keep_private({"costs": given})
    try:
        return PrivateCosts(**given)
    except (TypeError, ValueError):
        # The value is private, so the reason for the platform must not hold it.
        raise Declined("the costs in the device's private settings make no sense; see `coterie device costs`") from None


def with_computing(context: RoundContext, costs: PrivateCosts, steps: LocalSteps) -> PrivateCosts:
    """The costs with what computing this round is worth to the owner, by what it took before; measured if it never was.

    A batch of a few samples tells a device that has yet to sell anything. Nothing of it leaves the device.
    """
    try:
        tariff, effort = tariff_of(context.private), effort_of(context.private)
    except (TypeError, ValueError):
        why = "the price of computing in the device's private settings makes no sense; see `coterie device costs`"
        raise Declined(why) from None
    if tariff is None:
        return costs
    if effort is None:
        learner = context.learner
        few = np.arange(min(learner.samples, PROBED_SAMPLES))
        learner.gradient_sum(few, steps.clip_norm)  # the first time makes ready what later ones use
        with Meter() as meter:
            learner.gradient_sum(few, steps.clip_norm)
        effort = meter.effort(len(few))
        keep_effort(context, effort)
    computing = effort.cost(tariff, context.samples, steps.steps)
    return replace(costs, fixed=costs.fixed + computing)


def keep_effort(context: RoundContext, effort: Effort) -> None:
    """Keeps what computing took among the private settings, where the owner has a price for it."""
    if context.private.get("computing") is None:
        return
    try:
        earlier = effort_of(context.private)
    except (TypeError, ValueError):
        earlier = None
    context.keep_private({"effort": asdict(effort.after(earlier))})


def noised_descent(
    learner: Guarded, received: Arrays, steps: LocalSteps, budget: float, noised: Queried, seed: int = 0
) -> Arrays:
    """The model's change after passes of steps on clipped gradients, each with its share of the noise.

    Replacing an example moves the sum of gradients of its mini-batch by 2S and no other of that pass, so T passes of
    ρ/T spend ρ. On the mean over b examples that is noise of variance 2S²T/(b²ρ), [MPPFL]'s law. Which example is in
    which batch depends on their number alone, never on what they are.
    """
    samples, flat = learner.samples, Flat.of(received, learner.trained())
    start = flat.vector(received)
    multiplier = multiplier_of_rho(budget / steps.steps)
    change = np.zeros(flat.size)
    for batch in steps.order(samples, seed):
        learner.load(flat.put(start + change, received))
        total = flat.vector(learner.gradient_sum(batch, steps.clip_norm))
        change -= steps.learning_rate * noised(total, 2.0 * steps.clip_norm, multiplier) / len(batch)
    after = flat.put(start + change, received)
    return {name: np.asarray(after[name] - value, dtype=value.dtype) for name, value in received.items()}

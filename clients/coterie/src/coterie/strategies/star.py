"""Star: every device trains alone and delivers its change; with privacy "uniform", clipped and noised as a whole."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from coterie.agent.report import Delivery, Tensors
from coterie.errors import Declined, NotFinite
from coterie.learning.training_config import Instructions
from coterie.privacy.adaptive import WITHIN, adapts
from coterie.privacy.releases import COUNT, Arrays, Change, CountedChange, Raw
from coterie.records import WorkItem
from coterie.strategies import masked
from coterie.strategies.context import RoundContext

_ROUNDING = 1e-9
_log = logging.getLogger("coterie.star")


class Star:
    """Federated averaging: the change of the model after local epochs, weighted by samples; masked in secure sums."""

    serves: ClassVar[tuple[tuple[str, str, str], ...]] = (
        ("star", "none", "none"),
        ("star", "uniform", "none"),
        ("star", "none", "contribution"),
        ("star", "uniform", "contribution"),
    )
    masks: ClassVar[bool] = True

    def prepare(self, context: RoundContext) -> Delivery:
        """Train the round's model; metrics are those of the model before training."""
        work, learner = context.work, context.learner
        instructions = Instructions.of(work.training, work.batch_size)
        received = context.model()
        session = masked.accept(context, received) if work.sum else None
        learner.load(received)
        metrics = context.figures() if session is None else {}
        learner.train(instructions, context.seed)
        change = trained_change(context, received, noised=work.privacy != "none")
        if session is not None:
            return masked.deliver(context, session, change)
        if work.privacy != "uniform":
            return _delivery(context, context.release(Raw(change)), metrics)
        bounds = instructions.clip_norm, kept_noise(context)
        if not adapts(work.parameters):
            return _delivery(context, context.release(Change(change, *bounds)), metrics)
        released = context.release(CountedChange(change, *bounds))
        within = float(released.pop(COUNT)[0])  # noised and charged with the update
        return _delivery(context, released, {**metrics, WITHIN: within})


def _delivery(context: RoundContext, change: Arrays, metrics: Mapping[str, float]) -> Delivery:
    return Delivery(
        change,
        float(context.samples),
        metrics=metrics,
        public_metrics=context.public_metrics,
        privacy=context.charges(),
    )


def trained_change(context: RoundContext, received: Tensors, *, noised: bool) -> Arrays:
    """Return the trained change; with noise, zeros if it is not finite, because declining would reveal it."""
    try:
        return change_of(received, context.learner.parameters())
    except NotFinite as error:
        if not noised:
            raise
        _log.warning("round %d: zeros are sent in the place of the update: %s", context.work.round, error)
        return {name: np.zeros_like(value) for name, value in received.items()}


def change_of(before: Tensors, after: Tensors) -> Arrays:
    """after − before for every tensor, in the type the model has."""
    return {name: np.asarray(after[name] - before[name], dtype=before[name].dtype) for name in before}


def kept_noise(context: RoundContext) -> float:
    """Return the plan's noise multiplier; decline one below the task's promise when the device joined."""
    noise, joined = promised_noise(context.work), context.joined
    if joined is not None and noise < joined.noise_multiplier * (1.0 - _ROUNDING):
        raise Declined("this work asks for less noise than the task promised when the device joined it")
    return noise


def promised_noise(work: WorkItem) -> float:
    """Return the plan's noise multiplier; decline work without the promised noise."""
    if work.noise_multiplier <= 0.0:
        raise Declined("the task promises noise but the plan gives this device none; ask the publisher to check it")
    return work.noise_multiplier

"""Star: every device trains alone and hands its change in; with privacy "uniform", clipped and noised as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import Declined
from coterie.privacy.accounting import Unit, gaussian_charge
from coterie.privacy.clipping import clip_update
from coterie.privacy.gaussian import gaussian_noise
from coterie.privacy.ledger import BudgetExceeded
from coterie.procedures import procedure
from coterie.procedures.context import RoundContext
from coterie.work import Delivery, PrivacyUse, Tensors

Arrays = dict[str, NDArray[np.floating[Any]]]


@procedure("star", privacy="none", incentive="none")
@procedure("star", privacy="uniform", incentive="none")
class Star:
    """Federated averaging: the change of the model after local epochs, weighted by samples."""

    def prepare(self, context: RoundContext) -> Delivery:
        """Trains from the round's model; metrics are those of the model as it came."""
        from coterie.training import Recipe

        work, trainer = context.work, context.trainer
        recipe = Recipe.of(work.training, work.batch_size)
        received = context.model()
        trainer.load(received)
        metrics = trainer.evaluate()
        trainer.train(recipe, context.seed)
        change = change_of(received, trainer.tensors())
        uses: tuple[PrivacyUse, ...] = ()
        if work.privacy == "uniform":
            change, uses = protect(context, change, recipe.clip_norm)
        return Delivery(change, float(context.samples), metrics=metrics, privacy=uses)


def change_of(before: Tensors, after: Tensors) -> Arrays:
    """after − before for every tensor, in the type the model has."""
    return {name: np.asarray(after[name] - before[name], dtype=before[name].dtype) for name in before}


def protect(context: RoundContext, change: Arrays, bound: float) -> tuple[Arrays, tuple[PrivacyUse, ...]]:
    """Clips the whole change to an L2 norm of `bound`, charges the ledger, adds Gaussian noise.

    One device's whole data is hidden: the sensitivity of a clipped change is `bound` when a device is added or left
    out. Declines when the charge would cross the device's own limit.
    """
    multiplier = context.work.noise_multiplier
    if multiplier <= 0.0:
        raise Declined("the task promises noise but the plan gives this device none; ask the publisher to check it")
    unit: Unit = "device"
    clipped = clip_update(change, bound).tensors
    try:
        context.ledger.charge(
            gaussian_charge(context.work.task_id, context.work.round, context.purpose, unit, multiplier)
        )
    except BudgetExceeded as error:
        raise Declined(str(error)) from error
    random = context.noise()
    noised = {
        name: (value + gaussian_noise(value.shape, multiplier, bound, random)).astype(value.dtype)
        for name, value in clipped.items()
    }
    return noised, (PrivacyUse("gaussian", multiplier, unit),)

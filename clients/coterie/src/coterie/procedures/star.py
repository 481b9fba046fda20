"""Star: every device trains alone and hands its change in; with privacy "uniform", clipped and noised as a whole."""

from __future__ import annotations

import numpy as np

from coterie.errors import Declined
from coterie.privacy.releases import Arrays, Change, Raw
from coterie.procedures import procedure
from coterie.procedures.context import RoundContext
from coterie.records import WorkItem
from coterie.work import Delivery, Tensors


@procedure("star", privacy="none", incentive="none")
@procedure("star", privacy="uniform", incentive="none")
class Star:
    """Federated averaging: the change of the model after local epochs, weighted by samples."""

    def prepare(self, context: RoundContext) -> Delivery:
        """Trains from the round's model; metrics are those of the model as it came.

        Beside noise none are measured on samples trained with: the noise would not cover them.
        """
        from coterie.training import Recipe

        work, trainer = context.work, context.trainer
        recipe = Recipe.of(work.training, work.batch_size)
        received = context.model()
        trainer.load(received)
        metrics = trainer.evaluate() if work.privacy == "none" or trainer.has_test_samples else {}
        trainer.train(recipe, context.seed)
        change = change_of(received, trainer.tensors())
        noised = work.privacy == "uniform"
        change = context.release(Change(change, recipe.clip_norm, promised_noise(work)) if noised else Raw(change))
        return Delivery(change, float(context.samples), metrics=metrics, privacy=context.charges())


def change_of(before: Tensors, after: Tensors) -> Arrays:
    """after − before for every tensor, in the type the model has."""
    return {name: np.asarray(after[name] - before[name], dtype=before[name].dtype) for name in before}


def promised_noise(work: WorkItem) -> float:
    """The plan's noise multiplier where the task promises noise; declines when there is none."""
    if work.noise_multiplier <= 0.0:
        raise Declined("the task promises noise but the plan gives this device none; ask the publisher to check it")
    return work.noise_multiplier

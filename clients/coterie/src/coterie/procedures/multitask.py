"""Cells: a device finds out which of the task's K models is its own, trains that one and hands its change in. [DPVD]

It scores the models it holds by its loss and by whether its descent direction agrees with the model's last move
(`coterie.model_choice`), remembers what it chose, and once its choices agree fetches its likely models only.

With privacy, z is the plan's noise multiplier: the deviation of noise over the clip norm M. Per example, every step
sums clipped gradients of all X samples and adds noise of √steps · z · M; for a whole device, the change is clipped to M
once and gets noise of z · M. Replacing an example, or all the device's data, moves what is released by at most 2M, so
either way a round costs ρ = 2/z². Which model the device chose is told to the platform and is not covered by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import Declined
from coterie.model_choice import alignment, choose, likely_models
from coterie.privacy.releases import Arrays, Change, Descent, Queried, Raw
from coterie.procedures import procedure
from coterie.procedures.context import RoundContext
from coterie.procedures.star import change_of, promised_noise
from coterie.records import WorkItem
from coterie.work import Delivery

if TYPE_CHECKING:
    from coterie.training import Recipe, Trainer

HISTORY = "identities"


@dataclass(frozen=True, slots=True)
class Terms:
    """How devices find their model: the task's "topology" parameters, and `clip` of "privacy"."""

    identity_weight: float
    relative_loss: bool
    settle_after: int
    clip: float

    @classmethod
    def of(cls, work: WorkItem) -> Terms:
        """From a work item."""
        topology, privacy = work.parameters.get("topology", {}), work.parameters.get("privacy", {})
        return cls(
            float(topology.get("identity_weight", 0.5)),
            bool(topology.get("relative_loss", True)),
            int(topology.get("settle_after", 3)),
            float(privacy.get("clip", 1.0)),
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """What a device found out in a round: the model it chose, and loss and alignment of each model it compared."""

    model: int
    losses: Mapping[int, float]
    alignments: Mapping[int, float]


@procedure("cells")
class Multitask:
    """One of K models, chosen anew each round."""

    def prepare(self, context: RoundContext) -> Delivery:
        """Chooses, trains and hands in; metrics are those of the chosen model as it came."""
        from coterie.training import Recipe

        work, trainer, terms = context.work, context.trainer, Terms.of(context.work)
        if trainer.samples == 0:
            raise Declined("the device has no data for any model")
        history = read_history(context)
        candidates = likely_models(list(history.values()), len(work.model_digests), settle_after=terms.settle_after)
        found = find_identity(context, terms, candidates)
        received = context.model(found.model)
        trainer.load(received)
        metrics = trainer.evaluate() | figures(found, candidates)
        recipe = Recipe.of(work.training, work.batch_size)
        change = _protected(context, terms, recipe, received)
        keep_history(context, history | {work.round: found.model})
        return Delivery(
            change,
            float(context.samples),
            metrics=metrics,
            model_index=found.model,
            budget=rho_of(work) if work.privacy == "optimised" else 0.0,
            privacy=context.charges(),
        )


def find_identity(context: RoundContext, terms: Terms, candidates: tuple[int, ...]) -> Identity:
    """argmax_k λ S_k − (1 − λ) L_k over the candidate lines, on the device's training samples."""
    trainer, losses, alignments = context.trainer, {}, {}
    for line in candidates:
        trainer.load(context.model(line))
        losses[line] = trainer.evaluate_training().get("loss", math.inf)
        alignments[line] = _alignment(context, trainer, line)
    chosen = choose(
        [losses[line] for line in candidates],
        [alignments[line] for line in candidates],
        terms.identity_weight,
        relative_loss=terms.relative_loss,
    )
    return Identity(candidates[int(chosen)], losses, alignments)


def _alignment(context: RoundContext, trainer: Trainer, line: int) -> float:
    """S of the model the trainer holds; 0 while the line has not moved."""
    from coterie.training import load_model

    work = context.work
    if line >= len(work.previous_digests) or work.previous_digests[line] == work.model_digests[line]:
        return 0.0
    gradient, now = trainer.gradient(), trainer.parameters()
    trainer.load(load_model(context.fetch(work.previous_digests[line])))
    return alignment(gradient, now - trainer.parameters()) if np.isfinite(gradient).all() else 0.0


def figures(found: Identity, compared: tuple[int, ...]) -> dict[str, float]:
    """What the platform is told of the choice: which model, and how many were compared."""
    return {"model": float(found.model), "compared": float(len(compared))}


# --- the change, protected --------------------------------------------------------------------------------------------


def _protected(context: RoundContext, terms: Terms, recipe: Recipe, received: Arrays) -> Arrays:
    """Trains the chosen model and returns its change, with noise where the task promises it."""
    work, trainer = context.work, context.trainer
    trainer.load(received)
    if work.privacy == "optimised" and work.privacy_unit == "example":
        return context.release(
            Descent(rho_of(work), lambda noised: _descended(context, terms, recipe, received, noised))
        )
    trainer.train(recipe, context.seed)
    change = change_of(received, trainer.tensors())
    match work.privacy:
        case "none":
            return context.release(Raw(change))
        case "uniform":
            return context.release(Change(change, recipe.clip_norm, promised_noise(work)))
        case _:
            return context.release(Change(change, terms.clip, promised_noise(work), "replaced"))


def rho_of(work: WorkItem) -> float:
    """ρ = 2/z² of a round."""
    return 2.0 / promised_noise(work) ** 2


def _descended(context: RoundContext, terms: Terms, recipe: Recipe, received: Arrays, noised: Queried) -> Arrays:
    descend(context, terms, recipe, noised)
    return change_of(received, context.trainer.tensors())


def descend(context: RoundContext, terms: Terms, recipe: Recipe, noised: Queried) -> None:
    """`epochs` steps on all samples at once, each noised; together they cost what the plan's multiplier says."""
    trainer, steps = context.trainer, max(recipe.epochs, 1)
    indices = np.arange(trainer.samples)
    # ρ adds up over steps: √steps times the noise each makes the sum come out as planned. z is over M, not over 2M.
    multiplier = context.work.noise_multiplier * math.sqrt(steps) / 2.0
    for _ in range(steps):
        total = trainer.clipped_gradient_sum(indices, terms.clip)
        noisy = noised(total, 2.0 * terms.clip, multiplier)
        trainer.set_parameters(trainer.parameters() - recipe.learning_rate * noisy / len(indices))


# --- what was chosen before -------------------------------------------------------------------------------------------


def read_history(context: RoundContext) -> dict[int, int]:
    """Model chosen in each earlier round of this task; empty when nothing readable was kept."""
    kept = context.memory.load(HISTORY)
    if kept is None or "rounds" not in kept or "models" not in kept:
        return {}
    lines = range(len(context.work.model_digests))
    pairs = zip(kept["rounds"].tolist(), kept["models"].tolist(), strict=True)
    return {int(number): int(model) for number, model in pairs if number < context.work.round and model in lines}


def keep_history(context: RoundContext, history: Mapping[int, int]) -> None:
    """On disk when this returns."""
    ordered = sorted(history.items())
    columns: NDArray[Any] = np.array(ordered, dtype=np.int64).reshape(-1, 2)
    context.memory.save(HISTORY, {"rounds": columns[:, 0].copy(), "models": columns[:, 1].copy()})

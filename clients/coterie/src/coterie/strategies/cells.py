"""Cells: a device finds out which of the task's K models is its own, trains that one and hands its change in. [DPVD]

The device scores each model by its own loss and by whether its descent direction agrees with the model's last move
(`coterie.learning.model_choice`). It stores its choices and their margins. Once they agree it fetches only the likely
models; from time to time, and when its loss rises, all of them. It draws its first choices among near-equal models from
a private stream, so that the reported number fits more data sets than the best model's number would.

With privacy, z is the plan's noise multiplier: the deviation of noise over the clip norm M. Per example, every step
sums clipped gradients of all X samples and adds noise of √steps · z · M; for a whole device, the change is clipped to M
once and gets noise of z · M. Replacing an example, or all the device's data, moves what is released by at most 2M, so
either way a round costs ρ = 2/z². The reported number of the chosen model is not covered by it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coterie.agent.report import Delivery
from coterie.errors import NotFinite
from coterie.learning.learner import Guarded
from coterie.learning.model_choice import DRAWN, alignment, choose, lead, likely_models, near_equal, scores
from coterie.learning.models import Flat, load_model
from coterie.learning.training_config import Instructions
from coterie.parameters.privacy import OptimisedPrivacy
from coterie.parameters.topology import CellsParameters
from coterie.privacy.releases import Arrays, Change, Descent, Queried, Raw
from coterie.records import WorkItem
from coterie.strategies.context import RoundContext
from coterie.strategies.star import change_of, kept_noise, promised_noise, trained_change

HISTORY, COIN = "identities", "coin"


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
        cells = CellsParameters.of(work.parameters)
        return cls(
            identity_weight=cells.identity_weight,
            relative_loss=cells.relative_loss,
            settle_after=cells.settle_after,
            clip=OptimisedPrivacy.of(work.parameters).clip,
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """The outcome of a round's comparison: the chosen model, and loss and alignment of each compared model."""

    model: int
    losses: Mapping[int, float]
    alignments: Mapping[int, float]
    margin: float = math.nan
    compared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """The record of a round: the chosen model, its score's lead (NaN without comparison) and its loss."""

    model: int
    margin: float = math.nan
    loss: float = math.nan


class Cells:
    """One of K models, chosen again each round."""

    serves: ClassVar[tuple[tuple[str, str, str], ...]] = (("cells", "", ""),)

    def prepare(self, context: RoundContext) -> Delivery:
        """Choose a model, train it and deliver the change; metrics are those of the chosen model before training."""
        work, learner, terms = context.work, context.learner, Terms.of(context.work)
        history = read_history(context)
        # The platform sees the fetched models. With noise, they depend only on the choices already reported.
        known = history.values() if work.privacy == "none" else ()
        candidates = likely_models(
            [item.model for item in history.values()],
            len(work.model_digests),
            settle_after=terms.settle_after,
            margins=[item.margin for item in known],
            losses=[item.loss for item in known],
        )
        result = find_identity(context, terms, candidates, may_draw=len(history) < DRAWN)
        received = context.model(result.model)
        learner.load(received)
        metrics = context.figures() | (figures(result, candidates) if work.privacy == "none" else {})
        instructions = Instructions.of(work.training, work.batch_size)
        change = _protected(context, terms, instructions, received)
        retained = Choice(result.model, result.margin, result.losses[result.model])
        keep_history(context, history | {work.round: retained})
        return Delivery(
            change,
            float(context.samples),
            metrics=metrics,
            public_metrics=context.public_metrics,
            model_index=result.model,
            budget=rho_of(work) if work.privacy == "optimised" else 0.0,
            privacy=context.charges(),
        )


def find_identity(
    context: RoundContext, terms: Terms, candidates: tuple[int, ...], *, may_draw: bool = False
) -> Identity:
    """argmax_k λ S_k − (1 − λ) L_k over the candidate lines, on the device's training samples.

    may_draw: choose at random among near-equal lines.
    """
    learner, losses, alignments = context.learner, {}, {}
    everything, compared_bytes = np.arange(learner.samples), 0
    for line in candidates:
        model = context.model(line)
        compared_bytes += sum(value.nbytes for value in model.values())
        learner.load(model)
        losses[line] = learner.loss_of(everything)
        alignments[line] = _alignment(context, learner, line, model)
    compared = ([losses[line] for line in candidates], [alignments[line] for line in candidates], terms.identity_weight)
    value = scores(*compared, relative_loss=terms.relative_loss)
    chosen = int(choose(*compared, relative_loss=terms.relative_loss))
    near = near_equal(value)
    if may_draw and len(near) > 1:
        chosen = int(near[_word(context) % len(near)])
    return Identity(candidates[chosen], losses, alignments, lead(value), compared_bytes)


def _word(context: RoundContext) -> int:
    """Return this round's private random word, the same after a crash.

    It comes from a key on disk, because repeated work must release the same bytes, hence of the same model.
    """
    retained = context.memory.load(COIN)
    if retained is None or "key" not in retained:
        retained = {"key": context.noise().words(4)}
        context.memory.save(COIN, retained)
    drawn = hashlib.blake2b(b"%d" % context.work.round, key=retained["key"].tobytes()[:64], digest_size=8)
    return int.from_bytes(drawn.digest(), "big")


def _alignment(context: RoundContext, learner: Guarded, line: int, model: Arrays) -> float:
    """S of the model the learner holds; 0 while the line has not moved."""
    work = context.work
    if line >= len(work.previous_digests) or work.previous_digests[line] == work.model_digests[line]:
        return 0.0
    flat, before = Flat.of(model, learner.trained()), load_model(context.fetch(work.previous_digests[line]))
    try:
        gradient = flat.vector(learner.gradient_sum(np.arange(learner.samples), math.inf))
    except NotFinite:
        return 0.0
    move = flat.vector(model) - flat.vector(before)
    return alignment(gradient, move) if bool(np.isfinite(move).all()) else 0.0  # whatever the platform sends


def figures(identity: Identity, compared: tuple[int, ...]) -> dict[str, float]:
    """Metrics of the choice: the model, the number of compared models, and their bytes."""
    sizes = {"compared": float(len(compared)), "broadcast_bytes": float(identity.compared_bytes)}
    return {"model": float(identity.model)} | sizes


# --- the change, protected --------------------------------------------------------------------------------------------


def _protected(context: RoundContext, terms: Terms, instructions: Instructions, received: Arrays) -> Arrays:
    """Trains the chosen model and returns its change, with noise where the task promises it."""
    work, learner = context.work, context.learner
    learner.load(received)
    if work.privacy == "optimised" and work.privacy_unit == "example":
        return context.release(
            Descent(rho_of(work), lambda noised: descended(context, terms, instructions, received, noised))
        )
    learner.train(instructions, context.seed)
    change = trained_change(context, received, noised=work.privacy != "none")
    match work.privacy:
        case "none":
            return context.release(Raw(change))
        case "uniform":
            return context.release(Change(change, instructions.clip_norm, kept_noise(context)))
        case _:
            return context.release(Change(change, terms.clip, promised_noise(work), "replaced"))


def rho_of(work: WorkItem) -> float:
    """ρ = 2/z² of a round."""
    return 2.0 / promised_noise(work) ** 2


def descended(
    context: RoundContext, terms: Terms, instructions: Instructions, received: Arrays, noised: Queried
) -> Arrays:
    """The change after `epochs` steps on all samples at once; together they cost what the plan's multiplier says."""
    learner, steps = context.learner, max(instructions.epochs, 1)
    samples, flat, model = learner.samples, Flat.of(received, learner.trained()), received
    # ρ adds up over steps: √steps times the noise per step gives the planned total. z is relative to M, not to 2M.
    multiplier = context.work.noise_multiplier * math.sqrt(steps) / 2.0
    for _ in range(steps):
        learner.load(model)
        total = flat.vector(learner.gradient_sum(np.arange(samples), terms.clip))
        noisy = noised(total, 2.0 * terms.clip, multiplier)
        model = flat.put(flat.vector(model) - instructions.learning_rate * noisy / samples, received)
    return change_of(received, model)


# --- what was chosen before -------------------------------------------------------------------------------------------


def read_history(context: RoundContext) -> dict[int, Choice]:
    """Load the choice of each earlier round of this task, in order; empty without readable records."""
    retained = context.memory.load(HISTORY)
    if retained is None or "rounds" not in retained or "models" not in retained:
        return {}
    unknown = np.full(len(retained["rounds"]), math.nan)
    columns = (
        retained["rounds"],
        retained["models"],
        retained.get("margins", unknown),
        retained.get("losses", unknown),
    )
    lines = range(len(context.work.model_digests))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {
        int(number): Choice(int(model), margin, loss)
        for number, model, margin, loss in rows
        if number < context.work.round and model in lines
    }


def keep_history(context: RoundContext, history: Mapping[int, Choice]) -> None:
    """Store the choices on disk."""
    rounds = sorted(history)
    columns: dict[str, NDArray[Any]] = {
        "rounds": np.array(rounds, dtype=np.int64),
        "models": np.array([history[number].model for number in rounds], dtype=np.int64),
        "margins": np.array([history[number].margin for number in rounds]),
        "losses": np.array([history[number].loss for number in rounds]),
    }
    context.memory.save(HISTORY, columns)

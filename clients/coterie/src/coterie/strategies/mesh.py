"""Mesh: a device seals its parameters to its planned neighbours, mixes what they send, and takes its own step.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, (18) and Algorithm 1.

The model stays on the device: the platform carries letters it cannot read and gets figures, no tensors. State is on
disk before anything is reported, so a device continues after a crash, and noise is drawn once per release.

Unlike [BETTA], a noised device with the clipped sensitivity takes its gradient at y, what it sent, not at x, what it
has. At x, a sample of the round before moves the whole batch's gradient without being covered by this round's noise;
at y, everything but this round's batch is already public, and one sample moves the step by at most 2ηC/B.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from coterie.agent.mail import Received
from coterie.agent.report import Delivery
from coterie.errors import CoterieError, Declined, InvalidRequest, NotFound, RoundOver
from coterie.learning import mixing
from coterie.learning.best_fixed_model import best_fixed_model
from coterie.learning.learner import Guarded
from coterie.learning.mixing import MeshState, Vector
from coterie.learning.models import Flat
from coterie.parameters.privacy import PartialPrivacy
from coterie.parameters.topology import MeshParameters
from coterie.privacy.releases import Laplaced, Unproven
from coterie.records import WorkItem
from coterie.strategies.context import RoundContext
from coterie.strategies.device_state import DeviceState, Measured, Outgoing, Stream

KIND = NAME = PARAMETERS = "parameters"
_log = logging.getLogger("coterie.mesh")


@dataclass(frozen=True, slots=True)
class Terms:
    """A mesh task's parameters and learning rates."""

    privacy: PartialPrivacy
    mesh: MeshParameters
    learning_rate: float = 0.1
    learning_rate_decay: float = 0.99

    @classmethod
    def of(cls, work: WorkItem) -> Terms:
        """From a work item's parameters and training hints."""
        rates = {
            name: work.training[name] for name in ("learning_rate", "learning_rate_decay") if name in work.training
        }
        terms = cls(PartialPrivacy.of(work.parameters), MeshParameters.of(work.parameters), **rates)
        if not (terms.learning_rate > 0 and 0 < terms.learning_rate_decay <= 1):
            raise Declined(
                f"learning_rate {terms.learning_rate} and learning_rate_decay {terms.learning_rate_decay} are out of "
                "range; the first must be above 0, the second above 0 and at most 1"
            )
        return terms

    def hides(self, work: WorkItem) -> bool:
        """Whether noise that proves something hides what this device sends; the paper's scale does not."""
        return work.noised and self.privacy.sensitivity == "clipped"

    def bound(self, work: WorkItem) -> float:
        """‖·‖₁ each sample's gradient is clipped to; infinite where nothing is proven about it."""
        return self.privacy.clip if work.privacy == "partial" and self.privacy.sensitivity == "clipped" else math.inf


class Mesh:
    """One round of decentralised online learning."""

    serves: ClassVar[tuple[tuple[str, str, str], ...]] = (("mesh", "", ""),)

    def prepare(self, context: RoundContext) -> Delivery:
        """Send, wait, mix, step and report; a round already stepped is only sent and reported again."""
        work, terms = context.work, Terms.of(context.work)
        _refuse_raw_to_strangers(context, terms)
        state = DeviceState.load(context.memory)
        if state is None:
            context.learner.load(context.model())
        model = Present.of(context.learner)
        state = state or DeviceState(MeshState.start(model.vector()), Stream(context.seed))
        model.put(state.learner.parameters)
        if state.round == work.round:
            _send_again(context, state)
        else:
            state = _take_round(context, terms, state, model)
        return Delivery(
            None,
            float(context.samples),
            form="report",
            metrics=state.metrics,
            public_metrics=context.public_metrics,
            privacy=context.charges(state.steps - 1),
        )


@dataclass(frozen=True, slots=True)
class Present:
    """The learner's model as the vector that travels; what has no gradient stays as it is on the device."""

    learner: Guarded
    flat: Flat

    @classmethod
    def of(cls, learner: Guarded) -> Present:
        """Of the model the learner holds."""
        return cls(learner, Flat.of(learner.parameters(), learner.trained()))

    def vector(self) -> Vector:
        """The model."""
        return self.flat.vector(self.learner.parameters())

    def put(self, vector: Vector) -> None:
        """Replaces the model."""
        if vector.shape != (self.flat.size,):
            raise Declined(f"the learner has {self.flat.size} parameters, its model of the last round {vector.size}")
        self.learner.load(self.flat.put(vector, self.learner.parameters()))


def _take_round(context: RoundContext, terms: Terms, state: DeviceState, model: Present) -> DeviceState:
    work = context.work
    rate = mixing.step_size(work.round - 1, initial=terms.learning_rate, decay=terms.learning_rate_decay)
    outgoing = _outgoing(context, terms, state, rate)
    upload_seconds = _send(context, outgoing)
    heard = _receive(context, terms, len(outgoing.parameters))
    stepped, step_seconds = _step(context, terms, state, model, outgoing=outgoing, heard=heard, rate=rate)
    _report_times(context, terms, heard, upload_seconds, step_seconds / stepped.learner.batch_size)
    stepped.save(context.memory)
    return stepped


# --- sending ----------------------------------------------------------------------------------------------------------


def _refuse_raw_to_strangers(context: RoundContext, terms: Terms) -> None:
    work = context.work
    strangers = [peer.device_id for peer in work.peers if not peer.trusted]
    if strangers and not work.noised:
        raise Declined(f"the plan would send raw parameters to {strangers[0]}, whom this device does not trust")
    context.mail.refuse_strangers([peer.device_id for peer in work.peers], noised=terms.hides(work))


def _outgoing(context: RoundContext, terms: Terms, state: DeviceState, rate: float) -> Outgoing:
    """Return y for this state, drawn and charged once; a raw y is not reused once noise is due."""
    work, learner = context.work, state.learner
    retained = Outgoing.load(context.memory)
    scale = 0.0
    if work.noised:
        scale = mixing.noise_scale(
            learner, rate, terms.privacy.epsilon, sensitivity=terms.privacy.sensitivity, clip=terms.privacy.clip
        )
    if retained is not None and retained.steps == state.steps and (retained.scale > 0.0 or scale == 0.0):
        return retained
    drawn = learner.parameters.astype(np.float32)
    if state.steps > 0:
        drawn = _released(context, terms, state, scale)
    outgoing = Outgoing(drawn, state.steps, scale)
    outgoing.save(context.memory)
    return outgoing


def _released(context: RoundContext, terms: Terms, state: DeviceState, scale: float) -> NDArray[np.float32]:
    """One release per step taken; the paper's scale proves nothing and counts as raw."""
    vector = state.learner.parameters
    if scale > 0.0 and terms.privacy.sensitivity == "clipped":
        proven = Laplaced(NAME, vector, scale * terms.privacy.epsilon, terms.privacy.epsilon)
        return context.release(proven, PARAMETERS, state.steps)[NAME].astype(np.float32)
    unproven = Unproven(NAME, vector, scale)
    return context.release(unproven, f"raw {PARAMETERS}", state.steps)[NAME].astype(np.float32)


def _send(context: RoundContext, outgoing: Outgoing) -> dict[str, float]:
    """Send to each neighbour and return the seconds taken; stop early if the round is over for this device."""
    seconds, hidden = {}, Terms.of(context.work).hides(context.work)
    for peer in context.work.peers:
        began = time.monotonic()
        try:
            context.mail.send(peer.device_id, KIND, {NAME: outgoing.parameters}, noised=hidden)
        except (RoundOver, InvalidRequest) as error:
            _log.info("%s: round %d goes on without its letters: %s", context.device_id, context.work.round, error)
            break
        seconds[peer.device_id] = time.monotonic() - began
    return seconds


def _send_again(context: RoundContext, state: DeviceState) -> None:
    """Send the letters of a round again whose step was taken before a crash or a new plan."""
    outgoing = Outgoing.load(context.memory)
    noise_due = context.work.noised and state.steps > 1
    if outgoing is not None and outgoing.steps == state.steps - 1 and (outgoing.scale > 0.0 or not noise_due):
        _send(context, outgoing)


# --- receiving --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """Parameters of the neighbours that wrote, and the seconds each letter took to fetch."""

    parameters: Mapping[str, Vector]
    seconds: Mapping[str, float]


def _receive(context: RoundContext, terms: Terms, size: int) -> Heard:
    """Wait for every neighbour, up to the share of the time left; unusable letters count as missing."""
    now = context.mail.now()
    until = now + terms.mesh.wait_share * max(0.0, context.work.deadline_at - now)
    parameters: dict[str, Vector] = {}
    seconds: dict[str, float] = {}
    try:
        for received in context.mail.receive(KIND, {peer.device_id for peer in context.work.peers}, until=until):
            vector, fault = _vector(received, size)
            if vector is None:
                _log.warning("%s drops a letter from %s: %s", context.device_id, received.sender, fault)
                continue
            parameters[received.sender], seconds[received.sender] = vector, received.seconds
    except NotFound as error:
        _log.info("%s: the letters of round %d are gone: %s", context.device_id, context.work.round, error)
    return Heard(parameters, seconds)


def _vector(received: Received, size: int) -> tuple[Vector | None, str]:
    if received.letter is None:
        return None, received.fault
    tensor = received.letter.tensors.get(NAME)
    if tensor is None or tensor.shape != (size,) or not np.issubdtype(tensor.dtype, np.floating):
        return None, f"it holds no {size} parameters"
    if not np.isfinite(tensor).all():
        return None, "its parameters are not finite"
    return tensor.astype(np.float64), ""


# --- stepping ---------------------------------------------------------------------------------------------------------


def _step(
    context: RoundContext,
    terms: Terms,
    state: DeviceState,
    model: Present,
    outgoing: Outgoing,
    heard: Heard,
    rate: float,
) -> tuple[DeviceState, float]:
    work, own_learner = context.work, context.learner
    own, bound = outgoing.vector, terms.bound(work)
    samples, batch_size = own_learner.samples, work.batch_size or 32
    batch, stream = state.stream.take(samples, batch_size)
    model.put(own if outgoing.scale > 0.0 and math.isfinite(bound) else state.learner.parameters)
    arrived = own_learner.loss_of(batch)
    began = time.monotonic()
    gradient = model.flat.vector(own_learner.gradient_sum(batch, bound, "l1")) / len(batch)
    seconds = time.monotonic() - began
    numbers = {peer.device_id: number for number, peer in enumerate(work.peers)}
    learner = mixing.step(
        state.learner,
        own,
        {numbers[sender]: vector for sender, vector in heard.parameters.items()},
        {numbers[peer.device_id]: peer.weight for peer in work.peers},
        gradient,
        len(batch),
        rate,
        provably_private=math.isfinite(bound),
    )
    model.put(learner.parameters)
    stepped = replace(
        state,
        learner=learner,
        stream=stream,
        steps=state.steps + 1,
        round=work.round,
        online_loss=state.online_loss + arrived,
        growth=state.grown(samples, batch_size),
    )
    figures = _figures(context, terms, stepped, model, outgoing=outgoing, heard=heard, arrived=arrived) | {
        "step_seconds": seconds
    }
    return replace(stepped, metrics=figures), seconds


def _figures(
    context: RoundContext,
    terms: Terms,
    stepped: DeviceState,
    model: Present,
    outgoing: Outgoing,
    heard: Heard,
    arrived: float,
) -> dict[str, float]:
    """The round's figures: of the model after its step, and of the neighbourhood.

    `simulated_transfer_seconds` is the plan's clock, not this machine's.
    """
    peers = context.work.peers
    links = [peer.link_seconds for peer in peers] or [0.0]
    clear = context.tells_figures
    private = (
        _private_figures(context, stepped, model, outgoing=outgoing, heard=heard, arrived=arrived) if clear else {}
    )
    # The paper's scale is made from a gradient of the device's data; the clipped one from the task's numbers alone.
    scale = {"noise_scale": outgoing.scale} if clear or terms.privacy.sensitivity == "clipped" else {}
    figures = (
        context.figures()
        | private
        | scale
        | {
            "heard": len(heard.parameters) / len(peers) if peers else 1.0,
            "simulated_transfer_seconds": sum(links) if terms.mesh.transfers == "shared" else max(links),
        }
    )
    return {name: value for name, value in figures.items() if math.isfinite(value)}


def _private_figures(
    context: RoundContext, stepped: DeviceState, model: Present, outgoing: Outgoing, heard: Heard, arrived: float
) -> dict[str, float]:
    """What is computed on the device's data and parameters, and sent only where no noise is promised at all.

    `regret` compares the losses met so far with those of a fixed model: until the last round of the present one on the
    device's data, in the last of the best in hindsight on exactly what was seen, unless some of that is gone.
    """
    seen, samples = stepped.seen() if context.work.round >= context.work.rounds else [], context.learner.samples
    if any(batch.max() >= samples for batch in seen):
        fixed = math.nan
    elif seen:
        fixed = best_fixed_model(context.learner, model.flat, stepped.learner.parameters, seen)
    else:
        fixed = stepped.steps * context.learner.loss_of(np.arange(samples))
    apart = [float(np.sqrt(np.mean((other - outgoing.vector) ** 2))) for other in heard.parameters.values()]
    return {
        "online_loss": arrived,
        "regret": stepped.online_loss - fixed,
        "consensus_distance": float(np.mean(apart)) if apart else math.nan,
    }


# --- reporting --------------------------------------------------------------------------------------------------------


def _report_times(
    context: RoundContext, terms: Terms, heard: Heard, upload_seconds: Mapping[str, float], per_sample: float
) -> None:
    """Report new times of links and samples to the platform; a failure to report does not stop the round."""
    if terms.mesh.times != "measured":
        return
    last = Measured.load(context.memory)
    links = {peer: upload_seconds[peer] + heard.seconds[peer] for peer in heard.seconds if peer in upload_seconds}
    news = {peer: seconds for peer, seconds in links.items() if last.is_news(last.links.get(peer, 0.0), seconds)}
    faster = last.is_news(last.per_sample, per_sample)
    platform = context.mail.platform
    try:
        if news:
            platform.report_links(context.work.task_id, [(context.device_id, peer, s) for peer, s in news.items()])
        if faster:
            platform.update_device(context.device_id, capabilities={"seconds_per_sample": per_sample})
    except CoterieError as error:
        _log.info("%s could not report what its links take: %s", context.device_id, error)
        return
    if news or faster:
        Measured(per_sample if faster else last.per_sample, {**last.links, **news}).save(context.memory)

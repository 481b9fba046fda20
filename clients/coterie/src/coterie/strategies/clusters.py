"""Clusters: members seal their update to a trusted head, and the head delivers one sum; a device alone adds noise.

[SCFL] Social-Aware Clustered Federated Learning, §III-C and (4)-(7). A member trains, clips its whole change to the
task's `clip_norm`, adds the noise due at its trust in the head (none above the threshold), and seals the update to the
head's key; the platform gets metrics and a letter it cannot read. The head opens the letters that arrive in time,
rejects damaged ones and free riders, and delivers the un-normalised Σ qΔ with Σ q. Unlike [SCFL], a head without any
member's update delivers its own change with the largest noise, as a device alone does: a sum of one hides no device.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from coterie.agent.mail import Received
from coterie.agent.report import Delivery, MemberReport, Tensors
from coterie.errors import Declined
from coterie.learning.models import load_model
from coterie.learning.training_config import Instructions
from coterie.parameters.privacy import TrustPrivacy
from coterie.privacy.clipping import clip_update
from coterie.privacy.releases import Arrays, Change, Raw
from coterie.records import Peer, WorkItem
from coterie.strategies import head_checks as checks
from coterie.strategies import masked
from coterie.strategies.context import RoundContext
from coterie.strategies.head_checks import Flat, Tally
from coterie.strategies.noise_sale import noise_to_add, sold
from coterie.strategies.star import kept_noise, trained_change

KIND = "update"
HEAD_WAITS = 0.7
"""Share of the time left for which a head waits for letters; the platform gives heads a little longer."""
_TALLIES = "members"
_log = logging.getLogger("coterie.clusters")


class Clusters:
    """One round in a social cluster; with secure sums no other device sees a member's update, not even its head."""

    serves: ClassVar[tuple[tuple[str, str, str], ...]] = (("clusters", "", ""),)
    masks: ClassVar[bool] = True
    sums_apart: ClassVar[bool] = True

    def prepare(self, context: RoundContext) -> Delivery:
        """Work by role; metrics are those of the model before training."""
        if context.work.sum:
            return _in_sum(context)
        if context.work.privacy == "uniform":
            kept_noise(context)
        match context.work.role:
            case "member":
                return _as_member(context)
            case "head":
                return _as_head(context)
            case "solo":
                trained = _trained(context, noised=context.work.privacy != "none")
                return _alone(context, trained, noise_to_add(context), context.work.self_weight)
            case role:
                raise Declined(f"the plan gives this device the role {role!r}, which clusters do not know")


# --- work of all roles ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """The received model, the trained change, clipped where noise is promised, and metrics of the received model."""

    received: Arrays
    change: Arrays
    metrics: Mapping[str, float]


def _trained(context: RoundContext, *, noised: bool) -> Trained:
    """Train and clip; `noised` says whether the device adds noise to its release."""
    work, learner = context.work, context.learner
    instructions = Instructions.of(work.training, work.batch_size)
    received = context.model()
    learner.load(received)
    metrics = context.figures()
    learner.train(instructions, context.seed)
    change = trained_change(context, received, noised=noised)
    return Trained(received, change if work.privacy == "none" else _clipped(change, instructions.clip_norm), metrics)


def _clipped(change: Arrays, bound: float) -> Arrays:
    """Clip the whole change to `bound`, the most that one device can move a sum."""
    return clip_update(change, bound).tensors


def _bound(work: WorkItem) -> float:
    return Instructions.of(work.training, work.batch_size).clip_norm


def _released(context: RoundContext, change: Arrays, multiplier: float, purpose: str = "") -> Arrays:
    """Release the change with this noise multiplier (0 = none), charged to the ledger."""
    if context.work.privacy == "none" or multiplier <= 0.0:
        return context.release(Raw(change), purpose)
    return context.release(Change(change, _bound(context.work), multiplier), purpose)


def _alone(
    context: RoundContext,
    trained: Trained,
    multiplier: float,
    weight: float,
    members: tuple[MemberReport, ...] = (),
) -> Delivery:
    """Deliver the device's own noised change directly to the platform."""
    if multiplier <= 0.0 and context.work.privacy != "none":
        raise Declined("the plan lets this device upload alone without noise; ask the publisher to check it")
    purpose = context.purpose if not members else f"{context.purpose}-alone"
    tensors = _released(context, trained.change, multiplier, purpose)
    return Delivery(
        tensors,
        weight,
        metrics=trained.metrics,
        public_metrics=context.public_metrics,
        budget=sold(context, multiplier),
        privacy=context.charges(),
        members=members,
    )


def _in_sum(context: RoundContext) -> Delivery:
    """Deliver the masked change of a member or head in the cluster's sum; clipped if there is noise."""
    work, learner, received = context.work, context.learner, context.model()
    session = masked.accept(context, received)
    learner.load(received)
    instructions = Instructions.of(work.training, work.batch_size)
    learner.train(instructions, context.seed)
    change = trained_change(context, received, noised=session.terms.noise > 0.0)
    clipped = change if work.privacy == "none" else _clipped(change, instructions.clip_norm)
    return masked.deliver(context, session, clipped)


# --- members ----------------------------------------------------------------------------------------------------------


def _as_member(context: RoundContext) -> Delivery:
    work = context.work
    heads = [peer.device_id for peer in work.peers if peer.role == "head"]
    if len(heads) != 1:
        raise Declined(f"the plan gives this member {len(heads)} heads instead of one")
    multiplier = noise_to_add(context)
    noised = multiplier > 0.0 and work.privacy != "none"
    context.mail.refuse_strangers(heads, noised=noised)
    if context.mail.is_prepared(heads[0], KIND):
        # After a crash the sealed letter exists already; noise is drawn once per release.
        context.learner.load(context.model())
        metrics, letter = context.figures(), {}
    else:
        trained = _trained(context, noised=noised)
        metrics = dict(trained.metrics)
        letter = _released(context, trained.change, multiplier)
    context.mail.send(heads[0], KIND, dict(letter), noised=noised)
    budget = sold(context, multiplier)
    return Delivery(
        None,
        work.self_weight,
        form="report",
        metrics=metrics,
        public_metrics=context.public_metrics,
        budget=budget,
        privacy=context.charges(),
    )


# --- heads ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Inspection:
    """A head's checks of its members' letters, one after the other."""

    context: RoundContext
    trained: Trained
    own: Flat
    move: Flat | None
    tallies: dict[str, Tally]
    taken: dict[str, Arrays] = field(default_factory=dict)
    flat: dict[str, Flat] = field(default_factory=dict)
    reports: dict[str, MemberReport] = field(default_factory=dict)

    def look_at(self, received: Received) -> None:
        """Accept a letter's update, or refuse it with the reason."""
        fault = self._fault(received)
        if fault:
            self.reject(received.sender, fault)
            return
        assert received.letter is not None
        self.taken[received.sender] = received.letter.tensors
        self.flat[received.sender] = checks.flatten(received.letter.tensors)

    def reject(self, member: str, fault: str) -> None:
        """Leave a member out and record the reason."""
        _log.warning("%s refuses the update of %s: %s", self.context.device_id, member, fault)
        self.taken.pop(member, None)
        self.flat.pop(member, None)
        self.reports[member] = MemberReport(member, "rejected", fault[:200])

    def _fault(self, received: Received) -> str:
        if received.letter is None:
            return received.fault
        if received.letter.header.sender != received.sender:
            return f"its letter was written by {received.letter.header.sender}"
        fault = checks.misfit(received.letter.tensors, self.trained.received)
        if fault:
            return fault
        update = checks.flatten(received.letter.tensors)
        known = {**self.flat, "its head's own": self.own}
        if self.move is not None:
            known["the model's last change"] = self.move
        return self._too_long(update, received.sender) or checks.copied(update, known)

    def _too_long(self, update: Flat, sender: str) -> str:
        work = self.context.work
        if work.privacy == "none":
            return ""
        most = checks.largest_norm(_bound(work), _most_noise(work, sender), update.size)
        norm = float(np.linalg.norm(update))
        return f"its update has norm {norm:.4g}, at most {most:.4g} was agreed" if norm > most else ""

    def weigh_up(self) -> None:
        """Refuse updates that only a comparison exposes: zeros, and nothing but noise round after round."""
        updates = {**self.flat, "": self.own}
        for member in list(self.flat):
            others = [flat for name, flat in updates.items() if name != member]
            fault = checks.zero(updates[member], others) or self._noise_only(member, others)
            if not fault and self.context.work.privacy == "none":
                fault = checks.long(updates[member], others)
            if fault:
                self.reject(member, fault)

    def _noise_only(self, member: str, others: list[Flat]) -> str:
        update, work = self.flat[member], self.context.work
        # Directions only: a large update must not dominate the direction of the others.
        others_way = np.sum([other / max(float(np.linalg.norm(other)), 1e-300) for other in others], axis=0)
        tally = self.tallies[member] = self.tallies.get(member, Tally()).plus(update, others_way, self.move)
        noise = 0.0 if work.privacy == "none" else checks.implied_noise(update, _bound(work))
        if tally.is_noise(noise, update.size):
            return f"its updates of {tally.rounds} rounds show nothing but noise (score {tally.score():.1f})"
        return ""


def _most_noise(work: WorkItem, member: str) -> float:
    """The largest noise multiplier a member may have used."""
    if work.privacy == "uniform":
        return work.noise_multiplier
    trusted = {peer.device_id: peer.trusted for peer in work.peers}[member]
    return 0.0 if trusted else TrustPrivacy.of(work.parameters).noise_max


def _as_head(context: RoundContext) -> Delivery:
    work = context.work
    trained = _trained(context, noised=work.privacy != "none")  # zeros, too: the members' updates wait for its sum
    members = [peer for peer in work.peers if peer.role == "member"]
    inspection = Inspection(
        context, trained, checks.flatten(trained.change), _last_move(context, trained.received), _tallies(context)
    )
    now = context.mail.now()
    until = now + HEAD_WAITS * max(0.0, work.deadline_at - now)
    for received in context.mail.receive(KIND, {peer.device_id for peer in members}, until=until):
        inspection.look_at(received)
    inspection.weigh_up()
    _remember(context, inspection.tallies)
    reports = tuple(_report(peer, inspection) for peer in members)
    if not inspection.taken and work.privacy == "trust":
        noise_max = TrustPrivacy.of(work.parameters).noise_max
        return _alone(context, trained, noise_max, work.solo_weight or work.self_weight, reports)
    own = _released(context, trained.change, work.noise_multiplier)
    weights = {peer.device_id: peer.weight for peer in members if peer.device_id in inspection.taken}
    parts = [(work.self_weight, own), *((weights[name], inspection.taken[name]) for name in weights)]
    total = math.fsum(weight for weight, _ in parts)
    return Delivery(
        _sum(parts),
        total,
        form="sum",
        metrics=trained.metrics,
        public_metrics=context.public_metrics,
        privacy=context.charges(),
        members=reports,
    )


def _sum(parts: list[tuple[float, Arrays]]) -> Arrays:
    """Σ qΔ, not divided by anything. [SCFL] (5)."""
    first = parts[0][1]
    return {
        name: np.asarray(
            np.sum([weight * tensors[name].astype(np.float64) for weight, tensors in parts], axis=0),
            dtype=first[name].dtype,
        )
        for name in first
    }


def _report(peer: Peer, inspection: Inspection) -> MemberReport:
    if peer.device_id in inspection.taken:
        return MemberReport(peer.device_id, "delivered", weight=peer.weight)
    missing = MemberReport(peer.device_id, "dropped", "no letter came in time")
    return inspection.reports.get(peer.device_id, missing)


def _last_move(context: RoundContext, received: Tensors) -> Flat | None:
    """Return the model's change in the previous round; None in the first."""
    if not context.work.previous_digests or context.work.previous_digests[0] == context.work.model_digests[0]:
        return None
    before = load_model(context.fetch(context.work.previous_digests[0]))
    return checks.flatten(received) - checks.flatten(before)


def _tallies(context: RoundContext) -> dict[str, Tally]:
    """Load the tallies of earlier rounds; those of this round, if it is repeated, do not count."""
    retained = context.memory.load(_TALLIES) or {}
    tallies = {}
    for member, rows in retained.items():
        before = [row for row in np.atleast_2d(rows) if row[0] < context.work.round]
        if before:
            _, rounds, with_others, moves, with_move = before[-1]
            tallies[member] = Tally(int(rounds), float(with_others), int(moves), float(with_move))
    return tallies


def _remember(context: RoundContext, tallies: Mapping[str, Tally]) -> None:
    """Store this round's tallies beside earlier ones, so that a repeat after a crash counts nothing twice."""
    retained = context.memory.load(_TALLIES) or {}
    saved = {}
    for member, tally in tallies.items():
        now = np.array([context.work.round, tally.rounds, tally.with_others, tally.moves, tally.with_move])
        earlier = [row for row in np.atleast_2d(retained.get(member, np.empty((0, 5)))) if row[0] < context.work.round]
        saved[member] = np.stack([*earlier[-1:], now])
    if saved:
        context.memory.save(_TALLIES, saved)

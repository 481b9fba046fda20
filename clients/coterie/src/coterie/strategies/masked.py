"""Secure sums on the device: check the terms before training; deliver the change masked, noised and charged.

One transaction of the ledger stores the charge and the place of the sum before anything is stored for sending; repeats
send the same bytes. The device never stores the masks' seeds or the letters' key.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.agent.report import Delivery, SumSeal, Tensors
from coterie.errors import Declined, NotInCircle
from coterie.privacy.accounting import Charge, gaussian_charge, raw_charge
from coterie.privacy.adaptive import adapts
from coterie.privacy.releases import Arrays
from coterie.records import WorkItem
from coterie.secure_sums import notes
from coterie.secure_sums.acceptance import Myself, TermsRefused, UnknownClerks, check_terms, company_of, first_seen
from coterie.secure_sums.circle import Circle
from coterie.secure_sums.contribution import charged_multiplier, contribution, purpose, rho_alone
from coterie.secure_sums.joining import Joined
from coterie.secure_sums.terms import BadTerms, Participants, Terms
from coterie.secure_sums.uploads import FORM, make_upload
from coterie.strategies.context import RoundContext

CLEAR = "this device joined the task with clear sums; restart it to join again with secure sums"


@dataclass(frozen=True, slots=True)
class SumSession:
    """A sum this device may take part in."""

    terms: Terms
    participants: Participants
    myself: Myself
    circle: Circle


def refuse_downgrade(work: WorkItem, joined: Joined, circle: Circle) -> None:
    """Decline work in the clear of a task joined as secure, or if the owner accepts secure sums only."""
    if work.sum:
        return
    if joined.secure and not is_hidden_alone(work, joined):
        raise Declined("this task was joined as secure; work without the terms of a secure sum is never done")
    if circle.secure_only:
        raise Declined("this device's owner takes part in secure sums only; see `coterie circle set --clear-too`")


def is_hidden_alone(work: WorkItem, joined: Joined) -> bool:
    """Whether work in the clear is that of a device alone in clusters, with at least the promised noise."""
    return joined.apart and work.role == "solo" and 0.0 < joined.noise_alone <= work.noise_multiplier


def accept(context: RoundContext, received: Tensors) -> SumSession:
    """Return the work's sum if the device may take part in it; decline with the reason and the remedy."""
    work, joined = context.work, context.joined
    if joined is None or not joined.secure:
        raise Declined(CLEAR)
    try:
        terms = Terms.read(work.sum or "")
        if (terms.task, terms.round) != (work.task_id, work.round):
            raise TermsRefused("the terms are for another round than the work they came with")
        participants = Participants.read(context.mail.platform.sum_participants(terms.place, terms.participants))
        # With an adaptive clip norm, one more element says whether the update was within it.
        elements = sum(tensor.size for tensor in received.values()) + counts(work)
        key = context.keys.public().signing
        myself = Myself(context.device_id, context.owner_id, key, work.model_digests[0], elements)
        check_terms(
            terms,
            participants,
            myself,
            joined.promise(terms.least, terms.honest, terms.count, terms.noise),
            context.mail.circle,
        )
    except UnknownClerks as error:
        raise NotInCircle(str(error), error.clerks) from error
    except (BadTerms, TermsRefused) as error:
        raise Declined(str(error)) from error
    return SumSession(terms, participants, myself, context.mail.circle)


def deliver(context: RoundContext, session: SumSession, change: Arrays) -> Delivery:
    """Deliver a model's change as masked words and sealed seeds; charge and note it."""
    terms, weight = session.terms, weight_of(context, session)
    place = (terms.task, terms.round, purpose(terms))
    if terms.noise == 0.0:
        charge, alone = raw_charge(*place), 0.0
    else:
        charge = gaussian_charge(*place, "device", charged_multiplier(terms, session.circle))
        alone = rho_alone(terms)
    return release(
        context,
        session,
        lambda: contribution(in_file_order(context, change), terms, weight, context.noise(), counts(context.work)),
        charge,
        weight=weight,
        alone=alone,
    )


def counts(work: WorkItem) -> bool:
    """Whether the sum counts the updates within its clip norm."""
    return work.privacy == "uniform" and adapts(work.parameters)


def release(
    context: RoundContext,
    session: SumSession,
    values: Callable[[], NDArray[np.int64]],
    charge: Charge,
    *,
    weight: float = 1.0,
    alone: float = 0.0,
    budget: float = 0.0,
) -> Delivery:
    """Deliver noised whole numbers; `alone` is their ρ if t clerks and the platform collude."""
    context.check(charge)
    try:
        delivery = _masked(context, session, values(), weight, budget)
        context.charge(charge, lambda database: _note(database, session.terms, alone))
    except TermsRefused as error:
        raise Declined(str(error)) from error
    return replace(delivery, privacy=context.charges())


def deliver_charged(
    context: RoundContext, session: SumSession, change: Callable[[], Arrays], budget: float
) -> Delivery:
    """Deliver a change that is already noised and charged, in a sum without more noise.

    The place is noted first, so that a refused device makes no release.
    """
    terms, weight = session.terms, weight_of(context, session)
    try:
        context.ledger.note(lambda database: _note(database, terms))
        values = contribution(in_file_order(context, change()), terms, weight, context.noise())
        delivery = _masked(context, session, values, weight, budget)
    except TermsRefused as error:
        raise Declined(str(error)) from error
    return replace(delivery, privacy=context.charges())


def weight_of(context: RoundContext, session: SumSession) -> float:
    """Return the weight of the device's update in the sum."""
    return context.work.self_weight or (1.0 if session.terms.noise > 0.0 else float(context.samples))


def _masked(
    context: RoundContext, session: SumSession, values: NDArray[np.int64], weight: float, budget: float
) -> Delivery:
    terms, circle = session.terms, session.circle
    company = company_of(session.participants, context.device_id, circle)
    upload, signature = make_upload(
        values, terms, context.device_id, context.keys, company=company, company_least=circle.company_least
    )
    known = first_seen(terms, session.myself, circle)
    if known is not circle:
        context.keep_circle(known)
    seal = SumSeal(terms.digest.hex(), signature.hex())
    return Delivery(upload.tensors(), weight, form=FORM, budget=budget, sum=seal)


def _note(database: sqlite3.Connection, terms: Terms, alone: float = 0.0) -> None:
    notes.prepare(database)
    notes.note(database, terms)
    if alone > 0.0:
        notes.keep_alone(database, purpose(terms), alone)


def in_file_order(context: RoundContext, change: Arrays) -> NDArray[Any]:
    """All entries in one vector: tensors in the order of their data in the model's file, each in C order."""
    from safetensors import safe_open

    with safe_open(context.fetch(context.work.model_digests[0]), framework="numpy") as file:
        names = list(file.offset_keys())
    return np.concatenate([np.ravel(change[name]) for name in names])

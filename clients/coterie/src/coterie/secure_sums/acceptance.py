"""A device's checks before it masks: the terms are those it joined for, and the clerks those its owner knows.

The checks do not trust the platform. Refusals go to the platform, so they name what to do next and hold no key
material.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from coterie.secure_sums.circle import Circle, Member
from coterie.secure_sums.grid import clear_scale
from coterie.secure_sums.terms import NamedClerk, Participants, Terms, offer_message, signed_by

MOST_COMPANY = 64


class TermsRefused(Exception):
    """The device does not take part in this sum; the platform receives the message."""


class UnknownClerks(TermsRefused):
    """The owner does not know these clerks."""

    def __init__(self, message: str, clerks: Sequence[str]) -> None:
        super().__init__(message)
        self.clerks = tuple(clerks)


@dataclass(frozen=True, slots=True)
class Promise:
    """The task's sum parameters when the device joined, or what its preset derives from them.

    Attributes:
        clerks, threshold: m and t.
        colluders: participants assumed to collude with the platform.
        noise_multiplier: z of the sum; 0 only where no noise was promised.
    """

    clerks: int
    threshold: int
    colluders: int
    noise_multiplier: float


@dataclass(frozen=True, slots=True)
class Myself:
    """The checking device: its id, its owner's id, its signing key, and the model it received to train."""

    device: str
    owner: str
    signing_key: bytes
    model: str
    elements: int


def check_terms(terms: Terms, participants: Participants, myself: Myself, promise: Promise, circle: Circle) -> None:
    """Raise `TermsRefused` unless the device may mask its update under these terms. Pure."""
    _check_promise(terms, promise, circle)
    _check_numbers(terms)
    if (terms.model, terms.elements) != (myself.model, myself.elements):
        raise TermsRefused("the terms are for another model than the one this device received; ask for work again")
    _check_clerks(terms, myself, circle)
    _check_participants(terms, participants, myself, circle)


def _check_promise(terms: Terms, promise: Promise, circle: Circle) -> None:
    if (len(terms.clerks), terms.threshold) != (promise.clerks, promise.threshold):
        raise TermsRefused("the terms have another number of clerks than the task said when this device joined")
    if terms.noise != promise.noise_multiplier:
        raise TermsRefused("the terms have other noise than the task said when this device joined")
    if terms.least < max(3, circle.smallest_sum):
        raise TermsRefused("the sum may be of fewer devices than this device's owner wants; see `coterie circle set`")
    if terms.honest > terms.least - max(terms.threshold - 1, promise.colluders):
        raise TermsRefused("the terms count on more honest devices than the task said when this device joined")


def _check_numbers(terms: Terms) -> None:
    if float(terms.heaviest) <= 0.0:
        raise TermsRefused("the terms name no heaviest weight")
    if terms.noise == 0.0:
        if terms.bits != 64 or terms.scale != clear_scale(terms.count, float(terms.heaviest)):
            raise TermsRefused("a sum without noise has words of 64 bits and the scale of a clear sum")
        return
    if float(terms.clip_norm) <= 0.0:
        raise TermsRefused("the terms name no clip norm")
    fault = terms.grid().faults(terms.count)
    if fault is not None:
        raise TermsRefused(f"the terms' grid does not serve: {fault}")


def _check_clerks(terms: Terms, myself: Myself, circle: Circle) -> None:
    known = {**circle.seen, **circle.members, myself.device: Member(myself.signing_key, myself.owner)}
    strangers = []
    for clerk in terms.clerks:
        if not signed_by(
            clerk.signing_key, offer_message(terms.place, clerk.device, clerk.session_key), clerk.signature
        ):
            raise TermsRefused(f"the offer of clerk {clerk.device} is not signed by it for this session")
        pinned = known.get(clerk.device)
        if pinned is None:
            strangers.append(clerk)
        elif pinned.signing_key != clerk.signing_key:
            raise TermsRefused(
                f"clerk {clerk.device} comes with ANOTHER KEY than the one in this device's circle: another device may "
                "be posing as it; compare fingerprints with its owner"
            )
        elif pinned.owner != clerk.owner:
            raise TermsRefused(f"clerk {clerk.device} is said to be of another owner than in this device's circle")
    _check_strangers(terms, strangers, circle)


def _check_strangers(terms: Terms, strangers: list[NamedClerk], circle: Circle) -> None:
    if circle.mode == "first-use":
        return  # the terms require distinct owners; the caller stores the keys
    allowed = min(circle.strangers, terms.threshold - 1)
    if len(strangers) > allowed or (strangers and not circle.members):
        commands = "; ".join(f"coterie circle verify {clerk.device}" for clerk in strangers)
        raise UnknownClerks(
            f"{len(strangers)} of the clerks are not in this device's circle and its owner allows {allowed}; "
            f"after comparing fingerprints: {commands}",
            [clerk.device for clerk in strangers],
        )


def first_seen(terms: Terms, myself: Myself, circle: Circle) -> Circle:
    """Return the circle with the clerks' keys added in mode "first-use"; save it before anything is sent."""
    if circle.mode != "first-use":
        return circle
    others = [clerk for clerk in terms.clerks if clerk.device != myself.device]
    return circle.having_seen({clerk.device: Member(clerk.signing_key, clerk.owner) for clerk in others})


def _check_participants(terms: Terms, participants: Participants, myself: Myself, circle: Circle) -> None:
    if participants.digest != terms.participants or len(participants.keys) != terms.count:
        raise TermsRefused("the list of participants is not the one the terms were made for")
    if participants.keys.get(myself.device) != myself.signing_key:
        raise TermsRefused("this device is not among the participants under its own key")
    for device, member in circle.members.items():
        if device in participants.keys and participants.keys[device] != member.signing_key:
            raise TermsRefused(
                f"participant {device} comes with ANOTHER KEY than the one in this device's circle: another device may "
                "be posing as it; compare fingerprints with its owner"
            )
    here = len(_known_company(participants, myself.device, circle))
    if here < circle.company_least:
        raise TermsRefused(
            f"{here} members of this device's circle take part and its owner wants {circle.company_least} beside it"
        )


def company_of(participants: Participants, device: str, circle: Circle) -> list[bytes]:
    """Return key digests of at most 64 other members that take part; none if the owner requires no company.

    More than 64 are sampled at random, so that the platform cannot choose who is left out.
    """
    if circle.company_least == 0:
        return []
    company = _known_company(participants, device, circle)
    if len(company) > MOST_COMPANY:
        company = secrets.SystemRandom().sample(company, MOST_COMPANY)
    return sorted(company)


def _known_company(participants: Participants, device: str, circle: Circle) -> list[bytes]:
    own = participants.keys.get(device)
    digests = {
        participants.key_digests[name]
        for name, member in circle.members.items()
        if name != device and participants.keys.get(name) == member.signing_key != own
    }
    return sorted(digests)

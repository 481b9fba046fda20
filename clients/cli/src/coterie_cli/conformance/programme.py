"""All parts in their order, with what each step expects of a device."""

from __future__ import annotations

from collections.abc import Sequence

from coterie_cli.conformance.lessons import (
    Again,
    Busy,
    Ends,
    ForeignTask,
    ForgedModel,
    Honest,
    HugeModel,
    Joins,
    Lie,
    ModelCut,
    Redirected,
    RefusedUpdate,
    Registers,
    TooLate,
    Unreadable,
)
from coterie_cli.conformance.letter_lessons import NOISE, Head, Member, WrongHead
from coterie_cli.conformance.play import Part

PARTS = ("open", "noise", "clusters")
_UNIFORM = {"privacy": "uniform", "noise_multiplier": NOISE}


def programme(chosen: Sequence[str] = PARTS) -> list[Part]:
    """Fresh steps of the parts chosen; a device registers in the first of them."""
    makers = {"open": _open, "noise": _noise, "clusters": _clusters}
    parts = [makers[name]() for name in PARTS if name in chosen]
    first = parts[0]
    expects = "POST /v1/devices with sound keys and a proof, again with the same after a 503"
    registers = Registers("register", expects, is_fatal=True)
    return [Part(first.name, first.about, first.privacy, first.topology, [registers, *first.lessons]), *parts[1:]]


def _open() -> Part:
    return Part("open", "updates without noise, and a platform that fails and lies", "none", "star", [
        Joins("join", "PUT …/enrolments/{device} with samples from 1 on, before any work is asked for"),
        Honest("update", "PUT the change of the model, with its digest, a weight within the samples, and a raw claim"),
        Again("unanswered update", "when the answer is lost, the same bytes and report are sent again", lose=True),
        Again("work given twice", "the same work gives the same bytes"),
        Busy("busy", "after 503 and 429 the next request comes no sooner than Retry-After says"),
        Unreadable("unreadable answer", "an answer that is no JSON is the platform's fault: ask again"),
        ModelCut("model cut off", "a model that ends in the middle is fetched again, and none but a whole one is used"),
        TooLate("round over", "409 round_over: drop the work and ask for work again"),
        RefusedUpdate("update refused", "400 bad_update: decline or go on, but do not send it for ever"),
        ForgedModel("forged model", "bytes of another digest are thrown away: no update is made of them",
                    must_decline=False),
        HugeModel("endless model", "reading stops soon after max_update_bytes", must_decline=False),
        Redirected("redirected", "no redirect is followed", must_decline=False),
        ForeignTask("foreign task", "work of a task that was never joined is ignored", must_decline=False),
        Lie("unknown way", "a topology the device does not know is declined", {"topology": "ring-of-2040"}),
        Lie("too much work", "10¹² epochs are declined", {"training": {"epochs": 10**12}}),
        Lie("secure sum", "work with the terms of a sum is never answered in the clear", {"sum": "{}"}),
        Honest("still there", "after all that, honest work is done"),
        Ends("end", "a task that has ended is asked about no more"),
    ])  # fmt: skip


def _noise() -> Part:
    return Part("noise", "a task that promises noise on every device", "uniform", "star", [
        Joins("join", "PUT …/enrolments/{device}"),
        Honest("noised update", "clipped, noised and claimed as gaussian with the multiplier; or declined", _UNIFORM,
               optional=True, noise=NOISE),
        Again("noise drawn once", "the same work gives the same bytes: noise is not drawn again; or declined",
              _UNIFORM, optional=True, noise=NOISE),
        Lie("noise taken away", "work that calls itself privacy none in a task joined as uniform is declined",
            {"privacy": "none"}),
        Lie("noise of nothing", "privacy uniform with a noise multiplier of 0 is declined", {"privacy": "uniform"}),
        Ends("end", "a task that has ended is asked about no more"),
    ])  # fmt: skip


def _clusters() -> Part:
    return Part("clusters", "letters to and from other devices", "trust", "clusters", [
        Joins("join", "PUT …/enrolments/{device}"),
        Member("member", "a letter sealed to the head, then a report without tensors; or declined",
               optional=True, noise=NOISE),
        WrongHead("head with another key", "a head known by another key gets nothing (add the invitation first)",
                  case="another key"),
        WrongHead("head of small order", "nothing is sealed to a key that everybody can open", case="small order"),
        WrongHead("unknown head", "what has no noise goes to members of the circle alone", case="not in the circle",
                  noise=0.0),
        Member("raw to the circle", "sealed to the head's identity, if the owner allows raw at all; or declined",
               optional=True, to_identity=True),
        Head("head", "Σ weight · change of those whose letters are good, with a word on each; or declined",
             optional=True),
        Ends("end", "a task that has ended is asked about no more"),
    ])  # fmt: skip

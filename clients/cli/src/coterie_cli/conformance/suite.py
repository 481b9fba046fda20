"""All groups of cases in order, with what each case expects of a device."""

from __future__ import annotations

from collections.abc import Sequence

from coterie_cli.conformance.cases import (
    Busy,
    Ends,
    ForeignTask,
    ForgedModel,
    HugeModel,
    InvalidWork,
    Joins,
    LateUpdate,
    Redirected,
    RefusedUpdate,
    Registers,
    RepeatedWork,
    TruncatedModel,
    UnreadableResponse,
    ValidWork,
)
from coterie_cli.conformance.letter_cases import NOISE, Head, Member, WrongHead
from coterie_cli.conformance.runner import CaseGroup

GROUPS = ("open", "noise", "clusters")
_UNIFORM = {"privacy": "uniform", "noise_multiplier": NOISE}


def build_suite(chosen: Sequence[str] = GROUPS) -> list[CaseGroup]:
    """Build the cases of the chosen groups; the device registers in the first group."""
    makers = {"open": _open, "noise": _noise, "clusters": _clusters}
    groups = [makers[name]() for name in GROUPS if name in chosen]
    first = groups[0]
    expects = "POST /v1/devices with valid keys and a proof, and the same request again after a 503"
    registers = Registers("register", expects, is_fatal=True)
    return [CaseGroup(first.name, first.about, first.privacy, first.topology, [registers, *first.cases]), *groups[1:]]


def _open() -> CaseGroup:
    return CaseGroup("open", "updates without noise; the platform fails and sends invalid work", "none", "star", [
        Joins("join", "PUT …/enrolments/{device} with samples of 1 or more, before any request for work"),
        ValidWork("update", "PUT the change of the model with its digest, a weight within the samples and a raw claim"),
        RepeatedWork("unanswered update", "resend the same bytes and report when the response is lost", lose=True),
        RepeatedWork("work given twice", "send the same bytes for the same work"),
        Busy("busy", "after 503 and 429, wait for Retry-After before the next request"),
        UnreadableResponse("unreadable answer", "retry when the response is not JSON"),
        TruncatedModel("model cut off", "download the model again when it ends early; use only a complete one"),
        LateUpdate("round over", "409 round_over: drop the work and ask for work again"),
        RefusedUpdate("update refused", "400 bad_update: decline or go on, but do not resend it forever"),
        ForgedModel("forged model", "discard bytes that do not match the digest and send no update for them",
                    must_decline=False),
        HugeModel("endless model", "stop reading soon after max_update_bytes", must_decline=False),
        Redirected("redirected", "follow no redirect", must_decline=False),
        ForeignTask("foreign task", "ignore work of a task that the device never joined", must_decline=False),
        InvalidWork("unknown topology", "decline an unknown topology", {"topology": "ring-of-2040"}),
        InvalidWork("too much work", "decline 10¹² epochs", {"training": {"epochs": 10**12}}),
        InvalidWork("secure sum", "never answer work with the terms of a secure sum in the clear", {"sum": "{}"}),
        ValidWork("still there", "do valid work after all these cases"),
        Ends("end", "stop asking for work of a task that has ended"),
    ])  # fmt: skip


def _noise() -> CaseGroup:
    return CaseGroup("noise", "a task that promises noise on every device", "uniform", "star", [
        Joins("join", "PUT …/enrolments/{device}"),
        ValidWork("noised update", "clip, add noise and claim gaussian with the multiplier; or decline", _UNIFORM,
                  optional=True, noise=NOISE),
        RepeatedWork("noise drawn once", "send the same bytes for the same work, without new noise; or decline",
                     _UNIFORM, optional=True, noise=NOISE),
        InvalidWork("noise taken away", "decline work with privacy none in a task joined as uniform",
                    {"privacy": "none"}),
        InvalidWork("noise of nothing", "decline privacy uniform with a noise multiplier of 0", {"privacy": "uniform"}),
        Ends("end", "stop asking for work of a task that has ended"),
    ])  # fmt: skip


def _clusters() -> CaseGroup:
    return CaseGroup("clusters", "letters to and from other devices", "trust", "clusters", [
        Joins("join", "PUT …/enrolments/{device}"),
        Member("member", "seal a letter to the head, then send a report without tensors; or decline",
               optional=True, noise=NOISE),
        WrongHead("head with another key", "send nothing to a head with another key than in the invitation",
                  fault="another key"),
        WrongHead("head of small order", "seal nothing to a key of small order, which anyone can open",
                  fault="small order"),
        WrongHead("unknown head", "send updates without noise only to members of the circle",
                  fault="not in the circle", noise=0.0),
        Member("raw to the circle", "seal to the head's identity if the owner allows raw updates; or decline",
               optional=True, to_identity=True),
        Head("head", "send Σ weight · change over the valid letters, with an outcome for each member; or decline",
             optional=True),
        Ends("end", "stop asking for work of a task that has ended"),
    ])  # fmt: skip

"""Cases in which the device works with simulated peers: it must seal, open and refuse letters."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie.protocol.keys import DeviceKeys, PublicKeys
from coterie.protocol.letters import Header, Subject, seal
from coterie_cli.conformance import checks
from coterie_cli.conformance.cases import InvalidWork, ValidWork
from coterie_cli.conformance.checks import ProtocolViolation
from coterie_cli.conformance.fixtures import ABSENT, DEVICE, HEAD, STRANGER, task_id
from coterie_cli.conformance.runner import SuiteRunner
from coterie_cli.conformance.server import Request, Response, json_response

NOISE = 1.0
MEMBER_WEIGHT = 100.0
_SMALL_ORDER = bytes(32)


@dataclass(slots=True)
class Member(ValidWork):
    """The device is a member: it seals its update to its head, then sends a report."""

    to_identity: bool = False
    letter_digest: str = ""

    def work(self, runner: SuiteRunner) -> dict[str, Any] | None:
        head = runner.fixtures.peer(HEAD, "head", runner.fixtures.head.public(), trusted=self.noise == 0.0)
        return member_work(runner, self, head, self.noise)

    def on_letter(self, runner: SuiteRunner, request: Request, recipient: str) -> Response:
        if recipient != HEAD:
            raise ProtocolViolation(f"the device sent a letter to {recipient}; its head is {HEAD}")
        subject = Subject(task_id(self.group), self.number, self.number, "update")
        opened, between = checks.open_sealed(
            _checked_body(request, self.number), subject, runner.fixtures.head, HEAD, runner.fixtures
        )
        if self.to_identity and between != "identities":
            raise ProtocolViolation(
                "the letter to a head in the circle is sealed to the platform's key; seal it to the head's identity"
            )
        bound = float(runner.fixtures.training.get("clip_norm", 1.0))
        checks.require_noise(opened.tensors, bound, self.noise)
        digest = hashlib.sha256(request.body).hexdigest()
        if self.letter_digest not in ("", digest):
            raise ProtocolViolation(
                "the device sent a different letter for the same work; store each sealed letter and resend it"
            )
        self.letter_digest = digest
        return json_response(
            _letter_json(self.group, self.number, name="let_sent", sender=DEVICE, recipient=HEAD, sealed=request.body)
        )

    def on_update(self, runner: SuiteRunner, request: Request) -> Response:
        update = checks.update(request, runner.fixtures, form="report", most_weight=math.inf)
        if not self.letter_digest:
            raise ProtocolViolation("the report arrived before the letter to the head")
        if self.noise:
            checks.require_claim(update.report, "gaussian", self.noise)
        else:
            checks.require_claim(update.report, "raw")
        runner.finish(self, "passed")
        return json_response({"outcome": "accepted", "round": self.number})


@dataclass(slots=True)
class WrongHead(InvalidWork):
    """The device is a member of a head to which it must send nothing."""

    fault: str = ""
    noise: float = NOISE

    def work(self, runner: SuiteRunner) -> dict[str, Any] | None:
        fixtures = runner.fixtures
        stranger = fixtures.others[STRANGER].public()
        heads: Mapping[str, tuple[str, PublicKeys]] = {
            "another key": (HEAD, stranger),
            "small order": (STRANGER, PublicKeys(stranger.signing, _SMALL_ORDER, b"")),
            "not in the circle": (STRANGER, stranger),
        }
        name, keys = heads[self.fault]
        return member_work(runner, self, fixtures.peer(name, "head", keys, trusted=self.noise == 0.0), self.noise)


@dataclass(slots=True)
class Head(ValidWork):
    """The device is a head: one member's letter is valid, the other's belongs to another round."""

    box: list[tuple[dict[str, Any], bytes]] = field(default_factory=list)
    sent: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def work(self, runner: SuiteRunner) -> dict[str, Any] | None:
        peers = [
            runner.fixtures.peer(name, "member", keys.public(), weight=MEMBER_WEIGHT)
            for name, keys in runner.fixtures.others.items()
        ]
        changes = {"role": "head", "topology": "clusters", "privacy": "trust", "peers": peers}
        return runner.fixtures.work(self.group, self.number, noise_multiplier=NOISE, **changes)

    def letters(self, runner: SuiteRunner) -> Sequence[tuple[dict[str, Any], bytes]]:
        if not self.box:
            random = np.random.default_rng(7)
            change = {name: random.normal(size=value.shape) for name, value in runner.fixtures.tensors.items()}
            length = float(np.linalg.norm(checks.flat(change)))
            self.sent = {n: (0.5 * v / length).astype(runner.fixtures.tensors[n].dtype) for n, v in change.items()}
            for name, number in ((STRANGER, self.number), (ABSENT, self.number + 1)):
                sealed = self._sealed(runner, runner.fixtures.others[name], name, number)
                self.box.append(
                    (
                        _letter_json(
                            self.group, self.number, name=f"let_{name}", sender=name, recipient=DEVICE, sealed=sealed
                        ),
                        sealed,
                    )
                )
        return self.box

    def _sealed(self, runner: SuiteRunner, keys: DeviceKeys, name: str, number: int) -> bytes:
        assert runner.fixtures.device is not None
        header = Header(Subject(task_id(self.group), number, self.number, "update"), name, DEVICE)
        return seal(header, self.sent, keys, runner.fixtures.device.sealing)

    def on_update(self, runner: SuiteRunner, request: Request) -> Response:
        total_weight = 1.0 + MEMBER_WEIGHT
        update = checks.update(request, runner.fixtures, form="sum", most_weight=total_weight)
        outcomes = {item.get("device_id"): item.get("outcome") for item in update.report.get("members", [])}
        if outcomes.get(STRANGER) != "delivered":
            raise ProtocolViolation(f"members must list {STRANGER}, whose letter was valid, as delivered")
        if outcomes.get(ABSENT) not in ("rejected", "dropped"):
            raise ProtocolViolation(f"members must list {ABSENT}, whose letter belongs to another round, as rejected")
        if not math.isclose(update.report.get("weight", 0.0), total_weight):
            raise ProtocolViolation(
                f"weight must be self_weight plus the weight of the delivered members, {total_weight:g}"
            )
        member_change = checks.flat(self.sent)
        share = float(checks.flat(update.tensors) @ member_change) / float(member_change @ member_change)
        if not 0.8 * MEMBER_WEIGHT <= share <= 1.2 * MEMBER_WEIGHT:
            raise ProtocolViolation(
                f"the sum contains the member's change {share:.3g} times; it must contain it {MEMBER_WEIGHT:g} times"
            )
        runner.finish(self, "passed")
        return json_response({"outcome": "accepted", "round": self.number})


def member_work(runner: SuiteRunner, case: Member | WrongHead, head: dict[str, Any], noise: float) -> dict[str, Any]:
    """Return the work item of a member of this head."""
    changes = {"role": "member", "topology": "clusters", "privacy": "trust", "noise_multiplier": noise}
    return runner.fixtures.work(case.group, case.number, peers=[head], **changes)


def _checked_body(request: Request, plan_version: int) -> bytes:
    if request.headers.get("coterie-digest") != hashlib.sha256(request.body).hexdigest():
        raise ProtocolViolation("Coterie-Digest must be the SHA-256 of the letter")
    if request.query.get("kind") != ["update"] or request.query.get("plan_version") != [str(plan_version)]:
        raise ProtocolViolation(f"a member must PUT its letter with kind=update&plan_version={plan_version}")
    return request.body


def _letter_json(group: str, number: int, name: str, sender: str, recipient: str, sealed: bytes) -> dict[str, Any]:
    return {
        "id": name, "task_id": task_id(group), "round": number, "plan_version": number, "sender": sender,
        "recipient": recipient, "kind": "update", "digest": hashlib.sha256(sealed).hexdigest(),
        "size_bytes": len(sealed), "sent_at": time.time(),
    }  # fmt: skip

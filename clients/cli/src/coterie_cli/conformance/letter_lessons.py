"""The steps in which a device works with others, whom the kit invents: letters sealed, opened and refused."""

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
from coterie_cli.conformance.checks import Broken
from coterie_cli.conformance.lessons import Honest, Lie
from coterie_cli.conformance.play import Play
from coterie_cli.conformance.scene import ABSENT, DEVICE, HEAD, STRANGER, task_id
from coterie_cli.conformance.server import Answer, Request, told

NOISE = 1.0
MEMBER_WEIGHT = 100.0
_SMALL_ORDER = bytes(32)


@dataclass(slots=True)
class Member(Honest):
    """The device is a member: it seals its update to its head and then reports."""

    to_identity: bool = False
    came: str = ""

    def work(self, play: Play) -> dict[str, Any] | None:
        head = play.scene.peer(HEAD, "head", play.scene.head.public(), trusted=self.noise == 0.0)
        return member_work(play, self, head, self.noise)

    def lettered(self, play: Play, request: Request, recipient: str) -> Answer:
        if recipient != HEAD:
            raise Broken(f"a letter was sent to {recipient}; the head is {HEAD}")
        subject = Subject(task_id(self.part), self.number, self.number, "update")
        opened, between = checks.letter(_promised(request, self.number), subject, play.scene.head, HEAD, play.scene)
        if self.to_identity and between != "identities":
            raise Broken("the letter to a head in the circle is sealed to the key the platform named, not its identity")
        bound = float(play.scene.training.get("clip_norm", 1.0))
        checks.within_noise(opened.tensors, bound, self.noise)
        digest = hashlib.sha256(request.body).hexdigest()
        if self.came not in ("", digest):
            raise Broken("another letter came for the same work; store what is sealed and send that again")
        self.came = digest
        return told(_about(self.part, self.number, name="let_sent", sender=DEVICE, recipient=HEAD, sealed=request.body))

    def delivered(self, play: Play, request: Request) -> Answer:
        update = checks.update(request, play.scene, form="report", most_weight=math.inf)
        if not self.came:
            raise Broken("a report came before the letter to the head")
        if self.noise:
            checks.claims(update.report, "gaussian", self.noise)
        else:
            checks.claims(update.report, "raw")
        play.settle(self, "passed")
        return told({"outcome": "accepted", "round": self.number})


@dataclass(slots=True)
class WrongHead(Lie):
    """The device is a member of a head that must get nothing."""

    case: str = ""
    noise: float = NOISE

    def work(self, play: Play) -> dict[str, Any] | None:
        scene = play.scene
        stranger = scene.others[STRANGER].public()
        heads: Mapping[str, tuple[str, PublicKeys]] = {
            "another key": (HEAD, stranger),
            "small order": (STRANGER, PublicKeys(stranger.signing, _SMALL_ORDER, b"")),
            "not in the circle": (STRANGER, stranger),
        }
        name, keys = heads[self.case]
        return member_work(play, self, scene.peer(name, "head", keys, trusted=self.noise == 0.0), self.noise)


@dataclass(slots=True)
class Head(Honest):
    """The device is a head: one member's letter is good, the other's is about another round."""

    box: list[tuple[dict[str, Any], bytes]] = field(default_factory=list)
    sent: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def work(self, play: Play) -> dict[str, Any] | None:
        peers = [
            play.scene.peer(name, "member", keys.public(), weight=MEMBER_WEIGHT)
            for name, keys in play.scene.others.items()
        ]
        changes = {"role": "head", "topology": "clusters", "privacy": "trust", "peers": peers}
        return play.scene.work(self.part, self.number, noise_multiplier=NOISE, **changes)

    def letters(self, play: Play) -> Sequence[tuple[dict[str, Any], bytes]]:
        if not self.box:
            random = np.random.default_rng(7)
            change = {name: random.normal(size=value.shape) for name, value in play.scene.tensors.items()}
            length = float(np.linalg.norm(checks.flat(change)))
            self.sent = {n: (0.5 * v / length).astype(play.scene.tensors[n].dtype) for n, v in change.items()}
            for name, number in ((STRANGER, self.number), (ABSENT, self.number + 1)):
                sealed = self._sealed(play, play.scene.others[name], name, number)
                self.box.append(
                    (
                        _about(
                            self.part, self.number, name=f"let_{name}", sender=name, recipient=DEVICE, sealed=sealed
                        ),
                        sealed,
                    )
                )
        return self.box

    def _sealed(self, play: Play, keys: DeviceKeys, name: str, number: int) -> bytes:
        assert play.scene.device is not None
        header = Header(Subject(task_id(self.part), number, self.number, "update"), name, DEVICE)
        return seal(header, self.sent, keys, play.scene.device.sealing)

    def delivered(self, play: Play, request: Request) -> Answer:
        most = 1.0 + MEMBER_WEIGHT
        update = checks.update(request, play.scene, form="sum", most_weight=most)
        outcomes = {item.get("device_id"): item.get("outcome") for item in update.report.get("members", [])}
        if outcomes.get(STRANGER) != "delivered":
            raise Broken(f"members must say that {STRANGER}, whose letter was good, is delivered")
        if outcomes.get(ABSENT) not in ("rejected", "dropped"):
            raise Broken(f"members must say that {ABSENT}, whose letter was about another round, is rejected")
        if not math.isclose(update.report.get("weight", 0.0), most):
            raise Broken(f"weight must be self_weight plus the weight of those delivered, {most:g}")
        theirs = checks.flat(self.sent)
        share = float(checks.flat(update.tensors) @ theirs) / float(theirs @ theirs)
        if not 0.8 * MEMBER_WEIGHT <= share <= 1.2 * MEMBER_WEIGHT:
            raise Broken(
                f"the member's change is in the sum {share:.3g} times; Σ weight · change has {MEMBER_WEIGHT:g}"
            )
        play.settle(self, "passed")
        return told({"outcome": "accepted", "round": self.number})


def member_work(play: Play, lesson: Member | WrongHead, head: dict[str, Any], noise: float) -> dict[str, Any]:
    """Work of a member of this head."""
    changes = {"role": "member", "topology": "clusters", "privacy": "trust", "noise_multiplier": noise}
    return play.scene.work(lesson.part, lesson.number, peers=[head], **changes)


def _promised(request: Request, plan_version: int) -> bytes:
    if request.headers.get("coterie-digest") != hashlib.sha256(request.body).hexdigest():
        raise Broken("Coterie-Digest must be the SHA-256 of the letter")
    if request.query.get("kind") != ["update"] or request.query.get("plan_version") != [str(plan_version)]:
        raise Broken(f"a member's letter is put with kind=update&plan_version={plan_version}")
    return request.body


def _about(part: str, number: int, name: str, sender: str, recipient: str, sealed: bytes) -> dict[str, Any]:
    return {
        "id": name, "task_id": task_id(part), "round": number, "plan_version": number, "sender": sender,
        "recipient": recipient, "kind": "update", "digest": hashlib.sha256(sealed).hexdigest(),
        "size_bytes": len(sealed), "sent_at": time.time(),
    }  # fmt: skip

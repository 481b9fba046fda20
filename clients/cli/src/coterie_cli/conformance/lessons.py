"""The steps of a part in which a device speaks to the platform alone: what is done, and what the protocol expects."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from coterie_cli.conformance import checks
from coterie_cli.conformance.checks import Broken, Update
from coterie_cli.conformance.play import Lesson, Play
from coterie_cli.conformance.scene import task_id
from coterie_cli.conformance.server import Answer, Request, refused, told

RETRY_AFTER = 2.0
FLOOD_BYTES = 64 << 20
_SLACK = 0.9
"""Of a pause that was asked for: clocks of two processes differ a little."""
_ASKED_OFTEN = 3


@dataclass(slots=True)
class Registers(Lesson):
    """Registers, although the first answer is 503."""

    first: Request | None = None

    def work(self, play: Play) -> dict[str, Any] | None:
        return None

    def intercept(self, play: Play, request: Request) -> Answer | None:
        if (request.method, request.path) != ("POST", "/v1/devices"):
            return None
        keys, name = checks.registration(request, play.scene.token)
        if self.first is None:
            self.first, play.scene.device = request, keys
            return refused(503, "unavailable", "a moment, please", retry_after=1.0)
        if request.at - self.first.at < _SLACK:
            raise Broken(f"asked again after {request.at - self.first.at:.2f} s; Retry-After said 1")
        if play.scene.device is None or keys.signing != play.scene.device.signing:
            raise Broken("the repeated registration has another signing key; store the keys before the first one")
        play.scene.device, play.scene.name = keys, name
        play.settle(self, "passed")
        return told(play.scene.registered(), 201)


@dataclass(slots=True)
class Joins(Lesson):
    """Enrols in the part's task."""

    def polled(self, play: Play) -> None:
        if play.scene.device is not None:
            raise Broken("the device asks for work before it has enrolled")

    def intercept(self, play: Play, request: Request) -> Answer | None:
        if request.method != "PUT" or f"/v1/tasks/{task_id(self.part)}/enrolments/" not in request.path:
            return None
        answer = play._honest(request, self)
        if answer.status == 200:
            play.settle(self, "passed")
        return answer


@dataclass(slots=True)
class Honest(Lesson):
    """Ordinary work: an update is expected."""

    optional: bool = False
    noise: float = 0.0

    def delivered(self, play: Play, request: Request) -> Answer:
        self.check(play, request)
        play.settle(self, "passed")
        return told({"outcome": "accepted", "round": self.number})

    def check(self, play: Play, request: Request) -> Update:
        """The update, if it is sound."""
        update = checks.update(request, play.scene)
        if self.noise:
            checks.claims(update.report, "gaussian", self.noise)
            bound = float(play.scene.training.get("clip_norm", 1.0))
            checks.within_noise(update.tensors, bound, self.noise)
            if update.report.get("metrics") and not update.report.get("public_metrics"):
                raise Broken("figures came beside noise without public_metrics: noise covers no figures")
        else:
            checks.is_change(update.tensors, play.scene)
            checks.claims(update.report, "raw")
        return update

    def declined(self, play: Play, why: str) -> None:
        if not self.optional:
            raise Broken(f"the device declined: {why}")
        play.settle(self, "declined", why)


@dataclass(slots=True)
class Again(Honest):
    """The same work comes twice, or the answer to the first update is lost: the same bytes are expected again."""

    lose: bool = False
    first: Update | None = None

    def delivered(self, play: Play, request: Request) -> Answer:
        update = self.check(play, request)
        if self.first is None:
            self.first, self.polls = update, 0
            return Answer(cut=0) if self.lose else told({"outcome": "accepted", "round": self.number})
        if (update.digest, update.text) != (self.first.digest, self.first.text):
            raise Broken("another update came for the same work; store what is sent and send that again")
        play.settle(self, "passed")
        return told({"outcome": "repeated", "round": self.number})

    def polled(self, play: Play) -> None:
        if self.first is not None and not self.lose and self.polls > _ASKED_OFTEN:
            play.settle(self, "passed", "it knew that the work was done")


@dataclass(slots=True)
class Busy(Honest):
    """503, then 429, each with Retry-After."""

    told_at: list[float] = field(default_factory=list)

    def intercept(self, play: Play, request: Request) -> Answer | None:
        if (request.method, request.path) != ("GET", "/v1/work"):
            return None
        if self.told_at and len(self.told_at) <= 2:
            waited = request.at - self.told_at[-1]
            if waited < _SLACK * RETRY_AFTER:
                raise Broken(f"asked again after {waited:.2f} s; Retry-After said {RETRY_AFTER:g}")
        self.told_at.append(time.monotonic())
        if len(self.told_at) > 2:
            return None
        status, reason = ((503, "unavailable"), (429, "too_many_requests"))[len(self.told_at) - 1]
        return refused(status, reason, "a moment, please", retry_after=RETRY_AFTER)


@dataclass(slots=True)
class Unreadable(Honest):
    """One answer to a poll is no JSON."""

    done: bool = False

    def intercept(self, play: Play, request: Request) -> Answer | None:
        if (request.method, request.path) != ("GET", "/v1/work") or self.done:
            return None
        self.done = True
        return Answer(200, b'{"items": [{"task_id": "tsk_', {"Content-Type": "application/json"})


@dataclass(slots=True)
class ModelCut(Honest):
    """The model's download ends in the middle, once."""

    done: bool = False

    def intercept(self, play: Play, request: Request) -> Answer | None:
        if request.path != f"/v1/models/{play.scene.digest}" or self.done:
            return None
        self.done = True
        return Answer(200, play.scene.model, cut=len(play.scene.model) // 2)


@dataclass(slots=True)
class TooLate(Honest):
    """The update is refused: the round is over."""

    refusals: int = 0

    def delivered(self, play: Play, request: Request) -> Answer:
        self.check(play, request)
        self.refusals, self.polls = self.refusals + 1, 0
        if self.refusals > 2:
            raise Broken("the same update is sent again and again for a round that is over")
        return refused(409, "round_over", "the round is over; ask for work again")

    def polled(self, play: Play) -> None:
        if self.refusals:
            play.settle(self, "passed")


@dataclass(slots=True)
class RefusedUpdate(TooLate):
    """The update is refused for good."""

    def delivered(self, play: Play, request: Request) -> Answer:
        self.check(play, request)
        self.refusals, self.polls = self.refusals + 1, 0
        if self.refusals > 2:
            raise Broken("the same update is sent again and again although it was refused")
        return refused(400, "bad_update", "this update does not fit")

    def declined(self, play: Play, why: str) -> None:
        if not self.refusals:
            raise Broken(f"the device declined: {why}")
        play.settle(self, "passed")


@dataclass(slots=True)
class Lie(Lesson):
    """Work that must not be done: nothing may be handed in."""

    must_decline: bool = True
    is_lie: bool = True

    def delivered(self, play: Play, request: Request) -> Answer:
        raise Broken("an update was handed in")

    def lettered(self, play: Play, request: Request, recipient: str) -> Answer:
        raise Broken(f"a letter was sent to {recipient}")

    def declined(self, play: Play, why: str) -> None:
        play.settle(self, "passed", f"it declined: {why}" if why else "")

    def polled(self, play: Play) -> None:
        if self.polls > _ASKED_OFTEN:
            self.silent(play, "it asks for work again and again and does not decline")

    def silent(self, play: Play, why: str) -> None:
        play.settle(self, "failed" if self.must_decline else "passed", why if self.must_decline else "nothing came")


@dataclass(slots=True)
class ForgedModel(Lie):
    """The model's bytes are not those of its digest."""

    def intercept(self, play: Play, request: Request) -> Answer | None:
        if request.path != f"/v1/models/{play.scene.digest}":
            return None
        return Answer(200, play.scene.model[:-1] + bytes([play.scene.model[-1] ^ 1]))


@dataclass(slots=True)
class HugeModel(Lie):
    """The model's download does not end."""

    def intercept(self, play: Play, request: Request) -> Answer | None:
        if request.path != f"/v1/models/{play.scene.digest}":
            return None
        return Answer(200, flood=FLOOD_BYTES, sent=lambda count: self._sent(play, count))

    def _sent(self, play: Play, count: int) -> None:
        if count >= FLOOD_BYTES:
            most = len(play.scene.model) + 65_536
            play.settle(self, "failed", f"it read {count >> 20} MiB of a model that may have {most} bytes")


@dataclass(slots=True)
class Redirected(Lie):
    """The model's address leads to another server."""

    def intercept(self, play: Play, request: Request) -> Answer | None:
        if request.path != f"/v1/models/{play.scene.digest}":
            return None
        return Answer(307, headers={"Location": f"{play.elsewhere}{request.path}"})

    def followed(self, play: Play, request: Request) -> None:
        """A request came to the other server."""
        key = " with the API key" if "authorization" in request.headers else ""
        play.settle(self, "failed", f"the redirect was followed{key}")


@dataclass(slots=True)
class ForeignTask(Lie):
    """Work of a task that the device never joined."""

    def work(self, play: Play) -> dict[str, Any] | None:
        item = play.scene.work(self.part, self.number, **self.changes)
        return item | {"task_id": "tsk_nobody_joined"}


@dataclass(slots=True)
class Ends(Lesson):
    """The task has ended."""

    told_at: float = 0.0

    def intercept(self, play: Play, request: Request) -> Answer | None:
        if (request.method, request.path) != ("GET", "/v1/work"):
            return None
        self.polls += 1
        if self.polls > _ASKED_OFTEN:
            raise Broken("the device goes on asking for work of a task that has ended")
        self.told_at = self.told_at or time.monotonic()
        return told({"items": [], "retry_after_seconds": 0.0, "ended": {task_id(self.part): "finished"}})

    def silent(self, play: Play, why: str) -> None:
        play.settle(self, "passed" if self.told_at else "failed", "" if self.told_at else why)

"""Cases in which the device talks to the platform alone: what the platform does and what the protocol expects."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from coterie_cli.conformance import checks
from coterie_cli.conformance.checks import ProtocolViolation, Update
from coterie_cli.conformance.fixtures import task_id
from coterie_cli.conformance.runner import Case, SuiteRunner
from coterie_cli.conformance.server import Request, Response, json_response, problem

RETRY_AFTER = 2.0
FLOOD_BYTES = 64 << 20
_SLACK = 0.9
"""Share of a requested pause that must pass: the clocks of two processes differ a little."""
_MANY_POLLS = 3


@dataclass(slots=True)
class Registers(Case):
    """The device registers although the first response is 503."""

    first: Request | None = None

    def work(self, runner: SuiteRunner) -> dict[str, Any] | None:
        return None

    def intercept(self, runner: SuiteRunner, request: Request) -> Response | None:
        if (request.method, request.path) != ("POST", "/v1/devices"):
            return None
        keys, name = checks.registration(request, runner.fixtures.token)
        if self.first is None:
            self.first, runner.fixtures.device = request, keys
            return problem(503, "unavailable", "a moment, please", retry_after=1.0)
        if request.at - self.first.at < _SLACK:
            raise ProtocolViolation(
                f"the device retried after {request.at - self.first.at:.2f} s although Retry-After was 1 s"
            )
        if runner.fixtures.device is None or keys.signing != runner.fixtures.device.signing:
            raise ProtocolViolation(
                "the repeated registration has another signing key; store the keys before the first one"
            )
        runner.fixtures.device, runner.fixtures.name = keys, name
        runner.finish(self, "passed")
        return json_response(runner.fixtures.registration_json(), 201)


@dataclass(slots=True)
class Joins(Case):
    """The device enrols in the group's task."""

    def on_poll(self, runner: SuiteRunner) -> None:
        if runner.fixtures.device is not None:
            raise ProtocolViolation("the device asks for work before it has enrolled")

    def intercept(self, runner: SuiteRunner, request: Request) -> Response | None:
        if request.method != "PUT" or f"/v1/tasks/{task_id(self.group)}/enrolments/" not in request.path:
            return None
        response = runner.honest_response(request, self)
        if response.status == 200:
            runner.finish(self, "passed")
        return response


@dataclass(slots=True)
class ValidWork(Case):
    """Valid work: the device must send an update."""

    optional: bool = False
    noise: float = 0.0

    def on_update(self, runner: SuiteRunner, request: Request) -> Response:
        self.check(runner, request)
        runner.finish(self, "passed")
        return json_response({"outcome": "accepted", "round": self.number})

    def check(self, runner: SuiteRunner, request: Request) -> Update:
        """Return the update; raise `ProtocolViolation` when it breaks a rule."""
        update = checks.update(request, runner.fixtures)
        if self.noise:
            checks.require_claim(update.report, "gaussian", self.noise)
            bound = float(runner.fixtures.training.get("clip_norm", 1.0))
            checks.require_noise(update.tensors, bound, self.noise)
            if update.report.get("metrics") and not update.report.get("public_metrics"):
                raise ProtocolViolation(
                    "the report of a noised update has metrics without public_metrics; noise does not protect metrics"
                )
        else:
            checks.require_change(update.tensors, runner.fixtures)
            checks.require_claim(update.report, "raw")
        return update

    def on_decline(self, runner: SuiteRunner, why: str) -> None:
        if not self.optional:
            raise ProtocolViolation(f"the device declined: {why}")
        runner.finish(self, "declined", why)


@dataclass(slots=True)
class RepeatedWork(ValidWork):
    """The same work arrives twice, or the first response is lost: the device must resend the same bytes."""

    lose: bool = False
    first: Update | None = None

    def on_update(self, runner: SuiteRunner, request: Request) -> Response:
        update = self.check(runner, request)
        if self.first is None:
            self.first, self.polls = update, 0
            return Response(cut=0) if self.lose else json_response({"outcome": "accepted", "round": self.number})
        if (update.digest, update.text) != (self.first.digest, self.first.text):
            raise ProtocolViolation(
                "the device sent a different update for the same work; store each update and resend it"
            )
        runner.finish(self, "passed")
        return json_response({"outcome": "repeated", "round": self.number})

    def on_poll(self, runner: SuiteRunner) -> None:
        if self.first is not None and not self.lose and self.polls > _MANY_POLLS:
            runner.finish(self, "passed", "the device knew that the work was done")


@dataclass(slots=True)
class Busy(ValidWork):
    """The platform responds 503, then 429, each with Retry-After."""

    answered_at: list[float] = field(default_factory=list)

    def intercept(self, runner: SuiteRunner, request: Request) -> Response | None:
        if (request.method, request.path) != ("GET", "/v1/work"):
            return None
        if self.answered_at and len(self.answered_at) <= 2:
            waited = request.at - self.answered_at[-1]
            if waited < _SLACK * RETRY_AFTER:
                raise ProtocolViolation(
                    f"the device retried after {waited:.2f} s although Retry-After was {RETRY_AFTER:g} s"
                )
        self.answered_at.append(time.monotonic())
        if len(self.answered_at) > 2:
            return None
        status, reason = ((503, "unavailable"), (429, "too_many_requests"))[len(self.answered_at) - 1]
        return problem(status, reason, "a moment, please", retry_after=RETRY_AFTER)


@dataclass(slots=True)
class UnreadableResponse(ValidWork):
    """One response to a poll is not JSON."""

    done: bool = False

    def intercept(self, runner: SuiteRunner, request: Request) -> Response | None:
        if (request.method, request.path) != ("GET", "/v1/work") or self.done:
            return None
        self.done = True
        return Response(200, b'{"items": [{"task_id": "tsk_', {"Content-Type": "application/json"})


@dataclass(slots=True)
class TruncatedModel(ValidWork):
    """The first download of the model ends in the middle."""

    done: bool = False

    def intercept(self, runner: SuiteRunner, request: Request) -> Response | None:
        if request.path != f"/v1/models/{runner.fixtures.digest}" or self.done:
            return None
        self.done = True
        return Response(200, runner.fixtures.model, cut=len(runner.fixtures.model) // 2)


@dataclass(slots=True)
class LateUpdate(ValidWork):
    """The platform refuses the update: the round is over."""

    refusals: int = 0

    def on_update(self, runner: SuiteRunner, request: Request) -> Response:
        self.check(runner, request)
        self.refusals, self.polls = self.refusals + 1, 0
        if self.refusals > 2:
            raise ProtocolViolation("the device keeps sending the same update for a round that is over")
        return problem(409, "round_over", "the round is over; ask for work again")

    def on_poll(self, runner: SuiteRunner) -> None:
        if self.refusals:
            runner.finish(self, "passed")


@dataclass(slots=True)
class RefusedUpdate(LateUpdate):
    """The platform refuses the update permanently."""

    def on_update(self, runner: SuiteRunner, request: Request) -> Response:
        self.check(runner, request)
        self.refusals, self.polls = self.refusals + 1, 0
        if self.refusals > 2:
            raise ProtocolViolation("the device keeps sending an update that was refused")
        return problem(400, "bad_update", "this update does not fit")

    def on_decline(self, runner: SuiteRunner, why: str) -> None:
        if not self.refusals:
            raise ProtocolViolation(f"the device declined: {why}")
        runner.finish(self, "passed")


@dataclass(slots=True)
class InvalidWork(Case):
    """Work that the device must not do: it may send no update."""

    must_decline: bool = True
    is_invalid: bool = True

    def on_update(self, runner: SuiteRunner, request: Request) -> Response:
        raise ProtocolViolation("the device sent an update")

    def on_letter(self, runner: SuiteRunner, request: Request, recipient: str) -> Response:
        raise ProtocolViolation(f"the device sent a letter to {recipient}")

    def on_decline(self, runner: SuiteRunner, why: str) -> None:
        runner.finish(self, "passed", f"the device declined: {why}" if why else "")

    def on_poll(self, runner: SuiteRunner) -> None:
        if self.polls > _MANY_POLLS:
            self.on_silence(runner, "the device keeps asking for work and does not decline")

    def on_silence(self, runner: SuiteRunner, why: str) -> None:
        runner.finish(
            self, "failed" if self.must_decline else "passed", why if self.must_decline else "no update arrived"
        )


@dataclass(slots=True)
class ForgedModel(InvalidWork):
    """The model's bytes do not match its digest."""

    def intercept(self, runner: SuiteRunner, request: Request) -> Response | None:
        if request.path != f"/v1/models/{runner.fixtures.digest}":
            return None
        return Response(200, runner.fixtures.model[:-1] + bytes([runner.fixtures.model[-1] ^ 1]))


@dataclass(slots=True)
class HugeModel(InvalidWork):
    """The download of the model does not end."""

    def intercept(self, runner: SuiteRunner, request: Request) -> Response | None:
        if request.path != f"/v1/models/{runner.fixtures.digest}":
            return None
        return Response(200, flood=FLOOD_BYTES, sent=lambda count: self._sent(runner, count))

    def _sent(self, runner: SuiteRunner, count: int) -> None:
        if count >= FLOOD_BYTES:
            most = len(runner.fixtures.model) + 65_536
            runner.finish(self, "failed", f"the device read {count >> 20} MiB of a model of at most {most} bytes")


@dataclass(slots=True)
class Redirected(InvalidWork):
    """The model's URL redirects to another server."""

    def intercept(self, runner: SuiteRunner, request: Request) -> Response | None:
        if request.path != f"/v1/models/{runner.fixtures.digest}":
            return None
        return Response(307, headers={"Location": f"{runner.redirect_url}{request.path}"})

    def followed(self, runner: SuiteRunner, request: Request) -> None:
        """Fail the case: a request reached the other server."""
        key = " with the API key" if "authorization" in request.headers else ""
        runner.finish(self, "failed", f"the device followed the redirect{key}")


@dataclass(slots=True)
class ForeignTask(InvalidWork):
    """Work of a task that the device never joined."""

    def work(self, runner: SuiteRunner) -> dict[str, Any] | None:
        item = runner.fixtures.work(self.group, self.number, **self.changes)
        return item | {"task_id": "tsk_not_joined"}


@dataclass(slots=True)
class Ends(Case):
    """The task has ended."""

    answered_at: float = 0.0

    def intercept(self, runner: SuiteRunner, request: Request) -> Response | None:
        if (request.method, request.path) != ("GET", "/v1/work"):
            return None
        self.polls += 1
        if self.polls > _MANY_POLLS:
            raise ProtocolViolation("the device keeps asking for work of a task that has ended")
        self.answered_at = self.answered_at or time.monotonic()
        return json_response({"items": [], "retry_after_seconds": 0.0, "ended": {task_id(self.group): "finished"}})

    def on_silence(self, runner: SuiteRunner, why: str) -> None:
        runner.finish(self, "passed" if self.answered_at else "failed", "" if self.answered_at else why)

"""Run the cases in order and respond honestly to every request that the current case does not intercept."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from safetensors.numpy import load, save

from coterie.errors import CoterieError
from coterie_cli.conformance import checks
from coterie_cli.conformance.checks import ProtocolViolation
from coterie_cli.conformance.fixtures import DEVICE, HEAD, OWNER, Fixtures, task_id, task_name
from coterie_cli.conformance.server import Request, Response, json_response, problem

Outcome = Literal["passed", "failed", "declined", "skipped"]
NO_CONTENT = Response(204)
_ROUND_PATH = re.compile(
    r"^/v1/tasks/(?P<task>[^/]+)/rounds/(?P<round>\d+)/(?P<what>updates|decline|letters|objection)(?:/(?P<who>[^/]+))?$"
)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The outcome of one case."""

    group: str
    case: str
    expects: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CaseGroup:
    """One task, which the device joins once, and its cases."""

    name: str
    about: str
    privacy: str
    topology: str
    cases: Sequence[Case]


@dataclass(slots=True)
class Case:
    """One case: override the methods in which the platform behaves unusually."""

    name: str
    expects: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""
    number: int = 0
    polls: int = 0
    is_fatal: bool = False

    def work(self, runner: SuiteRunner) -> dict[str, Any] | None:
        """Return the work item to hand out; None for none."""
        return runner.fixtures.work(self.group, self.number, **self.changes)

    def intercept(self, runner: SuiteRunner, request: Request) -> Response | None:
        """Return a response in place of the honest one, or None."""
        return None

    def on_poll(self, runner: SuiteRunner) -> None:
        """Handle a request for work; `polls` counts them."""

    def on_update(self, runner: SuiteRunner, request: Request) -> Response:
        """Respond to an update."""
        raise ProtocolViolation("the device sent an update without work")

    def on_decline(self, runner: SuiteRunner, why: str) -> None:
        """Handle a decline."""
        raise ProtocolViolation(f"the device declined: {why}")

    def on_letter(self, runner: SuiteRunner, request: Request, recipient: str) -> Response:
        """Respond to a letter."""
        raise ProtocolViolation("the device sent a letter without work that needs one")

    def letters(self, runner: SuiteRunner) -> Sequence[tuple[dict[str, Any], bytes]]:
        """Return the letters that wait for the device."""
        return ()

    def on_silence(self, runner: SuiteRunner, why: str) -> None:
        """Handle the end of requests: the device exited or went silent."""
        runner.finish(self, "failed", why)


class SuiteRunner:
    """Runs every case of the groups once; safe to call from any thread."""

    def __init__(self, fixtures: Fixtures, groups: Sequence[CaseGroup], redirect_url: str = "") -> None:
        self.fixtures, self.groups, self.redirect_url = fixtures, groups, redirect_url
        self.results: list[CaseResult] = []
        self.last_request_at = time.monotonic()
        self.on_result: Callable[[CaseResult], None] = lambda result: None
        self.models: dict[str, bytes] = {}
        self._lock = threading.RLock()
        self._order = [(group, case) for group in groups for case in group.cases]
        for group in groups:
            for number, case in enumerate(group.cases, 1):
                case.group, case.number = group.name, number
        self._at = 0
        self._new_model()

    # --- progress -----------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether every case has an outcome."""
        return self._at >= len(self._order)

    @property
    def group(self) -> CaseGroup | None:
        """The current group; None at the end."""
        return None if self.is_over else self._order[self._at][0]

    @property
    def case(self) -> Case | None:
        """The current case; None at the end."""
        return None if self.is_over else self._order[self._at][1]

    def finish(self, case: Case, outcome: Outcome, detail: str = "") -> None:
        """Record the outcome of a case. The first one counts, but a later failure replaces a pass."""
        with self._lock:
            if self.case is case:
                self._record(CaseResult(case.group, case.name, case.expects, outcome, detail))
                self._at += 1
                self._new_model()
                if outcome == "failed" and case.is_fatal:
                    self.skip_rest("the device is not registered")
            elif outcome == "failed":
                for at, result in enumerate(self.results):
                    if (result.group, result.case) == (case.group, case.name) and result.outcome != "failed":
                        self.results[at] = CaseResult(case.group, case.name, case.expects, "failed", detail)

    def skip_rest(self, why: str) -> None:
        """Record every remaining case as skipped."""
        with self._lock:
            while not self.is_over:
                group, case = self._order[self._at]
                self._record(CaseResult(group.name, case.name, case.expects, "skipped", why))
                self._at += 1

    def report_silence(self, why: str) -> None:
        """Let the current case know that no more requests will arrive."""
        with self._lock:
            if self.case is not None:
                self.case.on_silence(self, why)

    def _record(self, result: CaseResult) -> None:
        self.results.append(result)
        self.on_result(result)

    def _new_model(self) -> None:
        """Make a model for the next case: as in real rounds, the device must fetch it."""
        moved = {name: (value + np.asarray(2.0**-7, value.dtype)) for name, value in load(self.fixtures.model).items()}
        self.fixtures.model = save(moved)
        self.models[self.fixtures.digest] = self.fixtures.model

    # --- responses ----------------------------------------------------------------------------------------------------

    def respond(self, request: Request) -> Response:
        """Respond to one request of the device."""
        with self._lock:
            if not request.path.endswith("/heartbeat"):
                self.last_request_at = time.monotonic()
            case = self.case
            if case is None:
                return self.honest_response(request, None)
            try:
                special = case.intercept(self, request)
                return special if special is not None else self.honest_response(request, case)
            except (ProtocolViolation, CoterieError) as error:
                self.finish(case, "failed", str(error))
                return problem(400, "invalid_input", str(error))

    def honest_response(self, request: Request, case: Case | None) -> Response:
        if request.method == "POST" and request.path == "/v1/devices":
            return self._registered_again(request)
        if request.headers.get("authorization") != f"Bearer {self.fixtures.api_key}":
            raise ProtocolViolation(f"{request.method} {request.path} lacks `Authorization: Bearer` with the API key")
        match = _ROUND_PATH.match(request.path)
        if match is not None:
            return self._in_round(request, match, case)
        if (request.method, request.path) == ("GET", "/v1/work"):
            return self._work(request, case)
        return self._read(request)

    def _registered_again(self, request: Request) -> Response:
        keys, _ = checks.registration(request, self.fixtures.token)
        if self.fixtures.device is None or keys.signing != self.fixtures.device.signing:
            raise ProtocolViolation(
                "the device registers with another signing key: create the identity once and store it"
            )
        self.fixtures.device = keys
        return json_response(self.fixtures.registration_json(), 201)

    def _work(self, request: Request, case: Case | None) -> Response:
        wanted = request.query.get("task", [])
        if case is None or (wanted and task_id(case.group) not in wanted):
            return json_response({"items": [], "retry_after_seconds": 0.5, "ended": dict.fromkeys(wanted, "finished")})
        case.polls += 1
        case.on_poll(self)
        if self.case is not case:
            return self.respond(request)  # the poll finished the case: the next one responds
        item = case.work(self)
        return json_response({"items": [] if item is None else [item], "retry_after_seconds": 0.5, "ended": {}})

    def _in_round(self, request: Request, match: re.Match[str], case: Case | None) -> Response:
        what, number = match["what"], int(match["round"])
        current = case is not None and number == case.number
        if what == "updates":
            if match["who"] != DEVICE:
                raise ProtocolViolation(f"the device sent an update for {match['who']}; this device is {DEVICE}")
            if case is None or not current:
                self._too_late(match["task"], number)
                return json_response({"outcome": "late", "round": 0 if case is None else case.number})
            return case.on_update(self, request)
        if what == "letters":
            return self._letters(request, match["who"], case if current else None)
        if what == "decline" and case is not None and current:
            why = checks.json_object(request.body, "the body of a decline").get("why", "")
            case.on_decline(self, str(why))
        return NO_CONTENT

    def _too_late(self, task: str, number: int) -> None:
        """Fail a finished case whose invalid work produced an update after all."""
        for _, case in self._order[: self._at]:
            if (task_id(case.group), case.number) == (task, number) and getattr(case, "is_invalid", False):
                self.finish(case, "failed", "the device sent an update after all")

    def _letters(self, request: Request, recipient: str | None, case: Case | None) -> Response:
        if request.method == "PUT" and case is not None and recipient is not None:
            return case.on_letter(self, request, recipient)
        waiting = [] if case is None else [about for about, _ in case.letters(self)]
        known = request.query.get("known", [])
        fresh = [about for about in waiting if about["id"] not in known]
        return json_response({"items": fresh, "round_state": "open" if case is not None else "done", "gone": []})

    def _read(self, request: Request) -> Response:
        path, fixtures = request.path, self.fixtures
        digest = path.removeprefix("/v1/models/")
        if digest in self.models and request.method == "GET":
            return Response(200, self.models[digest], {"Content-Type": "application/octet-stream"})
        if path == f"/v1/devices/{DEVICE}/heartbeat":
            return NO_CONTENT
        if path == f"/v1/devices/{HEAD}":
            return json_response(fixtures.device_json(HEAD, fixtures.head.public()))
        if path == f"/v1/devices/{DEVICE}":
            return json_response(fixtures.device_json(DEVICE, fixtures.device, fixtures.name))
        if path == "/v1/me":
            principal = {
                "role": "device",
                "subject": DEVICE,
                "name": fixtures.name,
                "owner_id": OWNER,
                "key_id": "key_1",
            }
            return json_response(principal)
        if path == "/v1/tasks":
            wanted = request.query.get("name", [""])[0]
            items = [self._task(group) for group in self.groups if wanted in ("", task_name(group.name))]
            return json_response({"items": items, "next_cursor": ""})
        for group in self.groups:
            if path == f"/v1/tasks/{task_id(group.name)}":
                return json_response(self._task(group))
            if path == f"/v1/tasks/{task_id(group.name)}/enrolments/{DEVICE}" and request.method == "PUT":
                return self._enrolled(request, group)
        if path.endswith(f"/devices/{DEVICE}/rounds"):
            return json_response({"items": [], "next_cursor": ""})
        if path.startswith("/v1/letters/") and self.case is not None:
            for about, sealed in self.case.letters(self):
                if path == f"/v1/letters/{about['id']}":
                    return Response(200, sealed, {"Content-Type": "application/octet-stream"})
        return problem(404, "unknown_path", f"{request.method} {path} does not exist; a device does not need it here")

    def _task(self, group: CaseGroup) -> dict[str, Any]:
        return self.fixtures.task(group.name, group.privacy, group.topology, len(group.cases))

    def _enrolled(self, request: Request, group: CaseGroup) -> Response:
        body = checks.json_object(request.body, "the body of an enrolment")
        samples = body.get("samples")
        if not isinstance(samples, int) or isinstance(samples, bool) or not 1 <= samples <= 1_000_000_000:
            raise ProtocolViolation(
                f"samples of an enrolment must be a whole number from 1 to 1000000000, not {samples!r}"
            )
        self.fixtures.samples = samples
        record = {"task_id": task_id(group.name), "device_id": DEVICE, "state": "active", "samples": samples}
        return json_response({**record, "non_iid": 0.0, "enrolled_at": time.time()})

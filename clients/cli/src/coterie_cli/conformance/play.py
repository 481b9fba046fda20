"""Keeps the order: which step is on, what each came to, and the honest answer to whatever the step leaves alone."""

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
from coterie_cli.conformance.checks import Broken
from coterie_cli.conformance.scene import DEVICE, HEAD, OWNER, Scene, task_id, task_name
from coterie_cli.conformance.server import Answer, Request, refused, told

Outcome = Literal["passed", "failed", "declined", "left out"]
NOTHING = Answer(204)
_PLACE = re.compile(
    r"^/v1/tasks/(?P<task>[^/]+)/rounds/(?P<round>\d+)/(?P<what>updates|decline|letters|objection)(?:/(?P<who>[^/]+))?$"
)


@dataclass(frozen=True, slots=True)
class Result:
    """What one step came to."""

    part: str
    step: str
    expects: str
    outcome: Outcome
    said: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """One task, joined once, and its steps."""

    name: str
    about: str
    privacy: str
    topology: str
    lessons: Sequence[Lesson]


@dataclass(slots=True)
class Lesson:
    """One step; what it does not answer itself is answered honestly."""

    name: str
    expects: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    part: str = ""
    number: int = 0
    polls: int = 0
    is_fatal: bool = False

    def work(self, play: Play) -> dict[str, Any] | None:
        """The item it gives."""
        return play.scene.work(self.part, self.number, **self.changes)

    def intercept(self, play: Play, request: Request) -> Answer | None:
        """An answer in place of the honest one."""
        return None

    def polled(self, play: Play) -> None:
        """The device asks for work; `polls` counts how often."""

    def delivered(self, play: Play, request: Request) -> Answer:
        """An update came."""
        raise Broken("an update came that nobody asked for")

    def declined(self, play: Play, why: str) -> None:
        """The device declined the work."""
        raise Broken(f"the device declined: {why}")

    def lettered(self, play: Play, request: Request, recipient: str) -> Answer:
        """A letter came."""
        raise Broken("a letter came that nobody asked for")

    def letters(self, play: Play) -> Sequence[tuple[dict[str, Any], bytes]]:
        """Letters that wait for the device."""
        return ()

    def silent(self, play: Play, why: str) -> None:
        """Nothing more comes: the device ended, or says nothing."""
        play.settle(self, "failed", why)


class Play:
    """One run; its methods may be called from any thread."""

    def __init__(self, scene: Scene, parts: Sequence[Part], elsewhere: str = "") -> None:
        self.scene, self.parts, self.elsewhere = scene, parts, elsewhere
        self.results: list[Result] = []
        self.heard_at = time.monotonic()
        self.on_result: Callable[[Result], None] = lambda result: None
        self.models: dict[str, bytes] = {}
        self._lock = threading.RLock()
        self._order = [(part, lesson) for part in parts for lesson in part.lessons]
        for part in parts:
            for number, lesson in enumerate(part.lessons, 1):
                lesson.part, lesson.number = part.name, number
        self._at = 0
        self._new_model()

    # --- where it stands ----------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether every step has been settled."""
        return self._at >= len(self._order)

    @property
    def part(self) -> Part | None:
        """The part that is on."""
        return None if self.is_over else self._order[self._at][0]

    @property
    def lesson(self) -> Lesson | None:
        """The step that is on."""
        return None if self.is_over else self._order[self._at][1]

    def settle(self, lesson: Lesson, outcome: Outcome, said: str = "") -> None:
        """A step is over; said twice, the first counts, but a lie believed too late is still believed."""
        with self._lock:
            if self.lesson is lesson:
                self._tell(Result(lesson.part, lesson.name, lesson.expects, outcome, said))
                self._at += 1
                self._new_model()
                if outcome == "failed" and lesson.is_fatal:
                    self.give_up("the device is not registered")
            elif outcome == "failed":
                for at, result in enumerate(self.results):
                    if (result.part, result.step) == (lesson.part, lesson.name) and result.outcome != "failed":
                        self.results[at] = Result(lesson.part, lesson.name, lesson.expects, "failed", said)

    def give_up(self, why: str) -> None:
        """The rest of the steps are left out."""
        with self._lock:
            while not self.is_over:
                part, lesson = self._order[self._at]
                self._tell(Result(part.name, lesson.name, lesson.expects, "left out", why))
                self._at += 1

    def be_silent(self, why: str) -> None:
        """Tells the step that is on that nothing more will come."""
        with self._lock:
            if self.lesson is not None:
                self.lesson.silent(self, why)

    def _tell(self, result: Result) -> None:
        self.results.append(result)
        self.on_result(result)

    def _new_model(self) -> None:
        """Every step has a model of its own, as every round does: a device fetches it."""
        moved = {name: (value + np.asarray(2.0**-7, value.dtype)) for name, value in load(self.scene.model).items()}
        self.scene.model = save(moved)
        self.models[self.scene.digest] = self.scene.model

    # --- answers ------------------------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Answer:
        """What the device is told."""
        with self._lock:
            if not request.path.endswith("/heartbeat"):
                self.heard_at = time.monotonic()
            lesson = self.lesson
            if lesson is None:
                return self._honest(request, None)
            try:
                special = lesson.intercept(self, request)
                return special if special is not None else self._honest(request, lesson)
            except (Broken, CoterieError) as error:
                self.settle(lesson, "failed", str(error))
                return refused(400, "invalid_input", str(error))

    def _honest(self, request: Request, lesson: Lesson | None) -> Answer:
        if request.method == "POST" and request.path == "/v1/devices":
            return self._registered_again(request)
        if request.headers.get("authorization") != f"Bearer {self.scene.api_key}":
            raise Broken(f"{request.method} {request.path} came without `Authorization: Bearer` and the key")
        place = _PLACE.match(request.path)
        if place is not None:
            return self._in_round(request, place, lesson)
        if (request.method, request.path) == ("GET", "/v1/work"):
            return self._work(request, lesson)
        return self._read(request)

    def _registered_again(self, request: Request) -> Answer:
        keys, _ = checks.registration(request, self.scene.token)
        if self.scene.device is None or keys.signing != self.scene.device.signing:
            raise Broken("the device registers with another signing key: an identity is made once and kept")
        self.scene.device = keys
        return told(self.scene.registered(), 201)

    def _work(self, request: Request, lesson: Lesson | None) -> Answer:
        asked = request.query.get("task", [])
        if lesson is None or (asked and task_id(lesson.part) not in asked):
            return told({"items": [], "retry_after_seconds": 0.5, "ended": dict.fromkeys(asked, "finished")})
        lesson.polls += 1
        lesson.polled(self)
        if self.lesson is not lesson:
            return self.answer(request)  # that settled it: the next step answers
        item = lesson.work(self)
        return told({"items": [] if item is None else [item], "retry_after_seconds": 0.5, "ended": {}})

    def _in_round(self, request: Request, place: re.Match[str], lesson: Lesson | None) -> Answer:
        what, number = place["what"], int(place["round"])
        current = lesson is not None and number == lesson.number
        if what == "updates":
            if place["who"] != DEVICE:
                raise Broken(f"an update was handed in for {place['who']}; this device is {DEVICE}")
            if lesson is None or not current:
                self._too_late(place["task"], number)
                return told({"outcome": "late", "round": 0 if lesson is None else lesson.number})
            return lesson.delivered(self, request)
        if what == "letters":
            return self._letters(request, place["who"], lesson if current else None)
        if what == "decline" and lesson is not None and current:
            why = checks.json_object(request.body, "the body of a decline").get("why", "")
            lesson.declined(self, str(why))
        return NOTHING

    def _too_late(self, task: str, number: int) -> None:
        """An update for a step that was settled: a lie it should have seen through stays one."""
        for _, lesson in self._order[: self._at]:
            if (task_id(lesson.part), lesson.number) == (task, number) and getattr(lesson, "is_lie", False):
                self.settle(lesson, "failed", "an update came after all")

    def _letters(self, request: Request, recipient: str | None, lesson: Lesson | None) -> Answer:
        if request.method == "PUT" and lesson is not None and recipient is not None:
            return lesson.lettered(self, request, recipient)
        result = [] if lesson is None else [about for about, _ in lesson.letters(self)]
        known = request.query.get("known", [])
        fresh = [about for about in result if about["id"] not in known]
        return told({"items": fresh, "round_state": "open" if lesson is not None else "done", "gone": []})

    def _read(self, request: Request) -> Answer:
        path, scene = request.path, self.scene
        digest = path.removeprefix("/v1/models/")
        if digest in self.models and request.method == "GET":
            return Answer(200, self.models[digest], {"Content-Type": "application/octet-stream"})
        if path == f"/v1/devices/{DEVICE}/heartbeat":
            return NOTHING
        if path == f"/v1/devices/{HEAD}":
            return told(scene.told_of(HEAD, scene.head.public()))
        if path == f"/v1/devices/{DEVICE}":
            return told(scene.told_of(DEVICE, scene.device, scene.name))
        if path == "/v1/me":
            me = {"role": "device", "subject": DEVICE, "name": scene.name, "owner_id": OWNER, "key_id": "key_1"}
            return told(me)
        if path == "/v1/tasks":
            wanted = request.query.get("name", [""])[0]
            items = [self._task(part) for part in self.parts if wanted in ("", task_name(part.name))]
            return told({"items": items, "next_cursor": ""})
        for part in self.parts:
            if path == f"/v1/tasks/{task_id(part.name)}":
                return told(self._task(part))
            if path == f"/v1/tasks/{task_id(part.name)}/enrolments/{DEVICE}" and request.method == "PUT":
                return self._enrolled(request, part)
        if path.endswith(f"/devices/{DEVICE}/rounds"):
            return told({"items": [], "next_cursor": ""})
        if path.startswith("/v1/letters/") and self.lesson is not None:
            for about, sealed in self.lesson.letters(self):
                if path == f"/v1/letters/{about['id']}":
                    return Answer(200, sealed, {"Content-Type": "application/octet-stream"})
        return refused(404, "unknown_path", f"{request.method} {path} is nothing a device needs here")

    def _task(self, part: Part) -> dict[str, Any]:
        return self.scene.task(part.name, part.privacy, part.topology, len(part.lessons))

    def _enrolled(self, request: Request, part: Part) -> Answer:
        body = checks.json_object(request.body, "the body of an enrolment")
        samples = body.get("samples")
        if not isinstance(samples, int) or isinstance(samples, bool) or not 1 <= samples <= 1_000_000_000:
            raise Broken(f"an enrolment tells samples, a whole number from 1 on, not {samples!r}")
        self.scene.samples = samples
        record = {"task_id": task_id(part.name), "device_id": DEVICE, "state": "active", "samples": samples}
        return told({**record, "non_iid": 0.0, "enrolled_at": time.time()})

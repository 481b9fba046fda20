"""Runs the programme against a device: one that is started here, or one that somebody starts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coterie_cli.conformance.lessons import Ends, Joins, Redirected, Registers
from coterie_cli.conformance.play import Part, Play, Result
from coterie_cli.conformance.programme import programme
from coterie_cli.conformance.scene import Scene, task_name
from coterie_cli.conformance.server import Answer, Request, Server, refused
from coterie_cli.processes import die_with_parent

QUIET_SECONDS = 5.0
"""After this long without a request, a device that nobody here started is taken to have ended."""
STARTING_TIMES = 10.0
MOST_STARTS_IN_VAIN = 3
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """How a device is tried."""

    scene: Scene
    parts: Sequence[str]
    port: int = 0
    command: Sequence[str] = ()
    home: Path = Path()
    patience_seconds: float = 60.0
    on_start: Callable[[Part, Mapping[str, str]], None] = lambda part, variables: None
    on_result: Callable[[Result], None] = lambda result: None

    def perform(self) -> list[Result]:
        """Plays every part; what each step came to."""
        play: Play

        def elsewhere(request: Request) -> Answer:
            if isinstance(play.lesson, Redirected):
                play.lesson.followed(play, request)
            return refused(404, "elsewhere", "nobody should have come here")

        with Server(elsewhere) as other:
            play = Play(self.scene, programme(self.parts), other.url)
            play.on_result = self.on_result
            with Server(play.answer, self.port) as server:
                for part in play.parts:
                    self._part(play, part, self._variables(server.url, part))
        return play.results

    def _variables(self, url: str, part: Part) -> dict[str, str]:
        """What the device is told, by environment."""
        return {
            "COTERIE_URL": url,
            "COTERIE_TOKEN": self.scene.token,
            "COTERIE_NAME": "device-under-test",
            "COTERIE_HOME": str(self.home),
            "COTERIE_TASK": task_name(part.name),
            "COTERIE_INVITATION": self.scene.invitation,
        }

    def _part(self, play: Play, part: Part, variables: Mapping[str, str]) -> None:
        if play.is_over:
            return
        self.on_start(part, variables)
        play.heard_at = time.monotonic()
        if not self.command:
            self._watch(play, part, lambda: None)
            return
        in_vain = 0
        while play.part is part and in_vain < MOST_STARTS_IN_VAIN:
            before = play.heard_at
            self._start(play, part, variables)
            in_vain = in_vain + 1 if play.heard_at == before else 0
        if play.part is part:
            play.be_silent("the device ended again and again without asking for anything")
            play.give_up("the device does not stay")

    def _start(self, play: Play, part: Part, variables: Mapping[str, str]) -> None:
        """The device once, until it ends or the part does."""
        filled = [_filled(word, variables) for word in self.command]
        process = subprocess.Popen(
            filled, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(),
            preexec_fn=die_with_parent,
        )  # fmt: skip
        try:
            self._watch(play, part, process.poll)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(timeout=10.0)
                except subprocess.TimeoutExpired:
                    process.kill()
            process.wait()

    def _watch(self, play: Play, part: Part, ended: Callable[[], int | None]) -> None:
        while play.part is part:
            code, quiet = ended(), time.monotonic() - play.heard_at
            if code is not None:
                play.be_silent(f"the device ended with {code}")
                return
            if quiet > self._patience(play):
                play.be_silent(f"nothing came for {quiet:.0f} s")
            time.sleep(_LOOK_SECONDS)

    def _patience(self, play: Play) -> float:
        if not self.command and isinstance(play.lesson, (Joins, Registers)):
            return STARTING_TIMES * self.patience_seconds  # somebody has to start it
        must_speak = getattr(play.lesson, "must_decline", True) and not isinstance(play.lesson, Ends)
        return self.patience_seconds if self.command or must_speak else min(QUIET_SECONDS, self.patience_seconds)


def _filled(word: str, variables: Mapping[str, str]) -> str:
    """An argument with {url}, {token} and the like filled in."""
    for name, value in variables.items():
        word = word.replace("{" + name.removeprefix("COTERIE_").lower() + "}", value)
    return word

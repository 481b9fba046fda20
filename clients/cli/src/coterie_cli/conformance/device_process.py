"""Run the suite against a device that this process starts, or that the user starts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coterie_cli.conformance.cases import Ends, Joins, Redirected, Registers
from coterie_cli.conformance.fixtures import Fixtures, task_name
from coterie_cli.conformance.runner import CaseGroup, CaseResult, SuiteRunner
from coterie_cli.conformance.server import Request, Response, Server, problem
from coterie_cli.conformance.suite import build_suite
from coterie_cli.processes import die_with_parent

QUIET_SECONDS = 5.0
"""A device that the user started counts as ended after this time without a request."""
START_PATIENCE_FACTOR = 10.0
"""The user has this many times the patience to start the device."""
MOST_SILENT_STARTS = 3
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class ConformanceRun:
    """One conformance run: its data, its groups and how to start the device."""

    fixtures: Fixtures
    groups: Sequence[str]
    port: int = 0
    command: Sequence[str] = ()
    home: Path = Path()
    patience_seconds: float = 60.0
    on_start: Callable[[CaseGroup, Mapping[str, str]], None] = lambda group, variables: None
    on_result: Callable[[CaseResult], None] = lambda result: None

    def perform(self) -> list[CaseResult]:
        """Run every group; return the outcome of each case."""
        runner: SuiteRunner

        def on_redirect(request: Request) -> Response:
            if isinstance(runner.case, Redirected):
                runner.case.followed(runner, request)
            return problem(404, "redirected", "the device must not follow the redirect")

        with Server(on_redirect) as other:
            runner = SuiteRunner(self.fixtures, build_suite(self.groups), other.url)
            runner.on_result = self.on_result
            with Server(runner.respond, self.port) as server:
                for group in runner.groups:
                    self._part(runner, group, self._variables(server.url, group))
        return runner.results

    def _variables(self, url: str, group: CaseGroup) -> dict[str, str]:
        """Return the environment variables of the device."""
        return {
            "COTERIE_URL": url,
            "COTERIE_TOKEN": self.fixtures.token,
            "COTERIE_NAME": "device-under-test",
            "COTERIE_HOME": str(self.home),
            "COTERIE_TASK": task_name(group.name),
            "COTERIE_INVITATION": self.fixtures.invitation,
        }

    def _part(self, runner: SuiteRunner, group: CaseGroup, variables: Mapping[str, str]) -> None:
        if runner.is_over:
            return
        self.on_start(group, variables)
        runner.last_request_at = time.monotonic()
        if not self.command:
            self._watch(runner, group, lambda: None)
            return
        silent_starts = 0
        while runner.group is group and silent_starts < MOST_SILENT_STARTS:
            before = runner.last_request_at
            self._start(runner, group, variables)
            silent_starts = silent_starts + 1 if runner.last_request_at == before else 0
        if runner.group is group:
            runner.report_silence(f"the device exited {MOST_SILENT_STARTS} times without a request")
            runner.skip_rest("the device does not keep running")

    def _start(self, runner: SuiteRunner, group: CaseGroup, variables: Mapping[str, str]) -> None:
        """Run the device once, until it exits or the group ends."""
        arguments = [_fill(word, variables) for word in self.command]
        process = subprocess.Popen(
            arguments, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(),
            preexec_fn=die_with_parent,
        )  # fmt: skip
        try:
            self._watch(runner, group, process.poll)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(timeout=10.0)
                except subprocess.TimeoutExpired:
                    process.kill()
            process.wait()

    def _watch(self, runner: SuiteRunner, group: CaseGroup, ended: Callable[[], int | None]) -> None:
        while runner.group is group:
            code, quiet = ended(), time.monotonic() - runner.last_request_at
            if code is not None:
                runner.report_silence(f"the device exited with code {code}")
                return
            if quiet > self._patience(runner):
                runner.report_silence(f"the device sent no request for {quiet:.0f} s")
            time.sleep(_LOOK_SECONDS)

    def _patience(self, runner: SuiteRunner) -> float:
        if not self.command and isinstance(runner.case, (Joins, Registers)):
            return START_PATIENCE_FACTOR * self.patience_seconds  # the user has to start it
        must_speak = getattr(runner.case, "must_decline", True) and not isinstance(runner.case, Ends)
        return self.patience_seconds if self.command or must_speak else min(QUIET_SECONDS, self.patience_seconds)


def _fill(word: str, variables: Mapping[str, str]) -> str:
    """Fill {url}, {token} and the other variables into an argument."""
    for name, value in variables.items():
        word = word.replace("{" + name.removeprefix("COTERIE_").lower() + "}", value)
    return word

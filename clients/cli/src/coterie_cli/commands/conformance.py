"""`coterie conformance`: test a device against the protocol."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from safetensors import SafetensorError
from safetensors.numpy import load

from coterie_cli.conformance.device_process import ConformanceRun
from coterie_cli.conformance.fixtures import TRAINING, Fixtures
from coterie_cli.conformance.runner import CaseGroup, CaseResult
from coterie_cli.conformance.suite import GROUPS
from coterie_cli.console import FAILED, AsJson, Mistake, err, out, read_json

EPILOG = """[bold]Examples[/]

coterie conformance -- python my_device.py\n
coterie conformance --group open -- ./device.sh {url} {token} {task}\n
coterie conformance --port 9999      [dim]then start the device by hand as printed[/]\n
coterie conformance --model model.safetensors --training '{"learning_rate": 0.01}' -- ./device --home {home}

The device receives COTERIE_URL, COTERIE_TOKEN, COTERIE_NAME, COTERIE_HOME (a folder it keeps), COTERIE_TASK (the name
of the task to join) and COTERIE_INVITATION (of a device for its circle) as environment variables, or {url}, {token}, …
in its arguments. It is started once for each group, and again when it exits early. Its output goes to stderr. Exit
code 0: all cases passed.
"""
_COLOURS = {"passed": "green", "declined": "yellow", "failed": "bold red", "skipped": "dim"}


def conformance(
    command: Annotated[
        list[str] | None, typer.Argument(help="Command that starts the device; without one, start it yourself.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on, on 127.0.0.1; 0 = any.")] = 0,
    group: Annotated[
        list[str] | None, typer.Option(help=f"Only this group of cases; repeat for more: {', '.join(GROUPS)}.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model of the task as safetensors; by default 64 inputs and 10 classes.")
    ] = None,
    training: Annotated[str, typer.Option(help="Training hints as JSON or @file.")] = json.dumps(TRAINING),
    patience: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds without a request after which a case ends.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Test a device against the protocol with a simulated platform, and name the cases that failed.

    docs/reference/protocol.md says what a device must do.
    """
    chosen = group or list(GROUPS)
    if unknown := [name for name in chosen if name not in GROUPS]:
        raise Mistake(f"unknown group {unknown[0]!r}; choose from {', '.join(GROUPS)}")
    fixtures = Fixtures(training=read_json(training, "--training"))
    if model is not None:
        fixtures.model = _model(model)
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        run = ConformanceRun(
            fixtures=fixtures,
            groups=chosen,
            port=port,
            command=command or (),
            home=Path(folder) / "device",
            patience_seconds=patience,
            on_start=lambda started, variables: _announce(started, variables, bool(command)),
            on_result=lambda result: None if as_json else _line(result),
        )
        results = run.perform()
    failed = [result for result in results if result.outcome in ("failed", "skipped")]
    if as_json:
        cases = [asdict(result) for result in results]
        out.print_json(json.dumps({"passed": not failed, "cases": cases}))
    else:
        out.print(_verdict(results))
    if failed:
        sys.exit(FAILED)


def _model(path: Path) -> bytes:
    content = path.read_bytes()
    try:
        if not load(content):
            raise ValueError("it holds no tensors")
    except (SafetensorError, ValueError, KeyError) as error:
        raise Mistake(f"{path} is not a model ({error}); give a safetensors file") from error
    return content


def _announce(group: CaseGroup, variables: Mapping[str, str], is_started: bool) -> None:
    err.print(f"[bold]{group.name}[/]: {group.about}")
    if not is_started:
        err.print("start the device now, with")
        for name, value in variables.items():
            err.print(f"  {name}={escape(value)}", soft_wrap=True)


def _line(result: CaseResult) -> None:
    colour = _COLOURS[result.outcome]
    out.print(f"[{colour}]{result.outcome:>8}[/]  {result.group}: {escape(result.case)}", soft_wrap=True)
    if result.outcome == "declined":
        out.print(f"          allowed; the device said: {escape(result.detail)}", soft_wrap=True)
    if result.outcome == "failed":
        out.print(
            f"          expected: {escape(result.expects)}\n          but: {escape(result.detail)}", soft_wrap=True
        )


def _verdict(results: list[CaseResult]) -> str:
    counts = {name: sum(result.outcome == name for result in results) for name in _COLOURS}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)

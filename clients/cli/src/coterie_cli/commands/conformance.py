"""`coterie conformance`: plays the platform, honest and lying, for a device under test."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from safetensors import SafetensorError
from safetensors.numpy import load

from coterie_cli.conformance.play import Part, Result
from coterie_cli.conformance.programme import PARTS
from coterie_cli.conformance.runner import Run
from coterie_cli.conformance.scene import TRAINING, Scene
from coterie_cli.console import FAILED, AsJson, Mistake, err, out, read_json

EPILOG = """[bold]Examples[/]

coterie conformance -- python my_device.py\n
coterie conformance --part open -- ./device.sh {url} {token} {task}\n
coterie conformance --port 9999      [dim]and start the device by hand, as it says[/]\n
coterie conformance --model model.safetensors --training '{"learning_rate": 0.01}' -- ./device --home {home}

The device finds COTERIE_URL, COTERIE_TOKEN, COTERIE_NAME, COTERIE_HOME (a folder that stays), COTERIE_TASK (to join, by
name) and COTERIE_INVITATION (of a device for its circle) in its environment, or {url}, {token}, … in its arguments. It
is started for each part anew, and again when it ends early. What it writes goes to stderr. Exit code 0: all passed.
"""
_COLOURS = {"passed": "green", "declined": "yellow", "failed": "bold red", "left out": "dim"}


def conformance(
    command: Annotated[
        list[str] | None, typer.Argument(help="How to start the device; left out: start it yourself.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on, of this machine; 0 = any.")] = 0,
    part: Annotated[
        list[str] | None, typer.Option(help=f"Only this part; repeat for more: {', '.join(PARTS)}.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Model of the task; left out: 64 inputs, 10 classes.")] = None,
    training: Annotated[str, typer.Option(help="Training hints as JSON or @file.")] = json.dumps(TRAINING),
    patience: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds without a request that a step takes.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Play the platform, honest and lying, for a device under test, and name the step that failed.

    What is expected of a device is docs/reference/protocol.md.
    """
    chosen = part or list(PARTS)
    if unknown := [name for name in chosen if name not in PARTS]:
        raise Mistake(f"there is no part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    scene = Scene(training=read_json(training, "--training"))
    if model is not None:
        scene.model = _model(model)
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        run = Run(
            scene=scene,
            parts=chosen,
            port=port,
            command=command or (),
            home=Path(folder) / "device",
            patience_seconds=patience,
            on_start=lambda which, variables: _announce(which, variables, bool(command)),
            on_result=lambda result: None if as_json else _line(result),
        )
        results = run.perform()
    failed = [result for result in results if result.outcome in ("failed", "left out")]
    if as_json:
        steps = [{**_plain(result)} for result in results]
        out.print_json(json.dumps({"passed": not failed, "steps": steps}))
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
        raise Mistake(f"{path} is no model ({error}); give a safetensors file") from error
    return content


def _announce(part: Part, variables: Mapping[str, str], starts: bool) -> None:
    err.print(f"[bold]{part.name}[/]: {part.about}")
    if not starts:
        err.print("start the device now, with")
        for name, value in variables.items():
            err.print(f"  {name}={escape(value)}", soft_wrap=True)


def _line(result: Result) -> None:
    colour = _COLOURS[result.outcome]
    out.print(f"[{colour}]{result.outcome:>8}[/]  {result.part}: {escape(result.step)}", soft_wrap=True)
    if result.outcome == "declined":
        out.print(f"          allowed; it said: {escape(result.said)}", soft_wrap=True)
    if result.outcome == "failed":
        out.print(f"          expected: {escape(result.expects)}\n          but: {escape(result.said)}", soft_wrap=True)


def _verdict(results: list[Result]) -> str:
    counts = {name: sum(result.outcome == name for result in results) for name in _COLOURS}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _plain(result: Result) -> dict[str, str]:
    return {
        "part": result.part,
        "step": result.step,
        "outcome": result.outcome,
        "expects": result.expects,
        "said": result.said,
    }

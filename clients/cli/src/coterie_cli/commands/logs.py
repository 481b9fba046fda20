"""`coterie logs`: show and follow the logs of all services of an embedded platform."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from coterie_cli.console import DEFAULT_DATA, AsJson, Mistake, out

EPILOG = """[bold]Examples[/]

coterie logs --follow\n
coterie logs --task tsk_01jd0e --level warning\n
coterie logs --service aggregation --lines 500 --json
"""
LEVELS = ("debug", "info", "warning", "error", "critical")
_STYLES = {"warning": "yellow", "error": "bold red", "critical": "bold red"}
_OWN = ("timestamp", "level", "service", "event", "exception")
_PAUSE_SECONDS = 0.3
Line = dict[str, Any]


def logs(
    data: Annotated[Path, typer.Option(help="Folder of the platform's data.")] = DEFAULT_DATA,
    service: Annotated[str, typer.Option(help="Only this service's lines.")] = "",
    task: Annotated[str, typer.Option(help="Only lines about this task.")] = "",
    device: Annotated[str, typer.Option(help="Only lines about this device.")] = "",
    request: Annotated[str, typer.Option(help="Only lines of this request id.")] = "",
    level: Annotated[str, typer.Option(help="This level and more severe: info, warning, error.")] = "info",
    lines: Annotated[int, typer.Option(min=0, help="Number of last lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new lines until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the logs of a platform started by `coterie up`, all services in order of time."""
    if level not in LEVELS:
        raise Mistake(f"--level must be one of {', '.join(LEVELS)}, not {level!r}")
    folder = data / "logs"
    if not folder.is_dir():
        raise Mistake(f"{folder} does not exist; name the data folder of a platform that `coterie up` runs with --data")
    worse = frozenset(LEVELS[LEVELS.index(level) :])
    filters = {"service": service, "task": task, "device": device, "request_id": request}
    wanted = {name: value for name, value in filters.items() if value}

    def matches(line: Line) -> bool:
        return line.get("level", "info") in worse and all(line.get(name) == value for name, value in wanted.items())

    tails = Tails(folder)
    recent = [line for line in tails.fresh() if matches(line)]
    _print(recent[max(0, len(recent) - lines) :], as_json)
    while follow:
        time.sleep(_PAUSE_SECONDS)
        _print(filter(matches, tails.fresh()), as_json)


@dataclass(slots=True)
class Tails:
    """The log files of a folder and how far each was read."""

    folder: Path
    read: dict[Path, int] = field(default_factory=dict)

    def fresh(self) -> list[Line]:
        """Return the complete lines written since the last call, sorted by time."""
        paths = sorted(self.folder.glob("*.log"))
        return sorted((line for path in paths for line in self._fresh_of(path)), key=_time)

    def _fresh_of(self, path: Path) -> Iterator[Line]:
        start = self.read.get(path, 0)
        with path.open("rb") as file:
            if file.seek(0, 2) < start:
                start = 0  # truncated or replaced
            file.seek(start)
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return
        self.read[path] = start + len(whole) + 1
        for text in whole.decode(errors="replace").splitlines():
            yield parse(text, path.stem)


def parse(text: str, service: str) -> Line:
    """Parse a line: JSON of a service, or plain text of a library."""
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    return line if isinstance(line, dict) else {"service": service, "level": "info", "event": text}


def _time(line: Line) -> str:
    return str(line.get("timestamp", ""))


def _print(lines: Iterable[Line], as_json: bool) -> None:
    for line in lines:
        if as_json:
            out.print(json.dumps(line), soft_wrap=True, markup=False)
        else:
            out.print(readable(line), soft_wrap=True)


def readable(line: Line) -> Text:
    """Format a line: time, service, event, and the other fields as name=value."""
    level = str(line.get("level", "info"))
    rest = "  ".join(f"{name}={value}" for name, value in line.items() if name not in _OWN)
    text = Text(f"{str(line.get('timestamp', ''))[11:19]:8} {line.get('service', '')!s:11} ", style="dim")
    text.append(_escaped(str(line.get("event", ""))), style=_STYLES.get(level, "default"))
    text.append(f"  {_escaped(rest)}" if rest else "")
    if line.get("exception"):
        text.append("\n" + _escaped(str(line["exception"]), keep="\n"), style="red")
    return text


def _escaped(text: str, keep: str = "") -> str:
    """Escape terminal control characters, which text from devices may contain."""
    return "".join(sign if sign.isprintable() or sign in keep else repr(sign)[1:-1] for sign in text)

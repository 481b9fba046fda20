"""`coterie logs`: what the services of an embedded platform wrote, together, filtered, as it comes."""

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
    level: Annotated[str, typer.Option(help="This level and worse: info, warning, error.")] = "info",
    lines: Annotated[int, typer.Option(min=0, help="How many of the last lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the log lines of a platform started by `coterie up`, those of all services in order of time."""
    if level not in LEVELS:
        raise Mistake(f"--level {level!r} is none of {', '.join(LEVELS)}")
    folder = data / "logs"
    if not folder.is_dir():
        raise Mistake(f"{folder} does not exist; name the data folder of a platform that `coterie up` runs with --data")
    worse = frozenset(LEVELS[LEVELS.index(level) :])
    asked = {"service": service, "task": task, "device": device, "request_id": request}
    wanted = {name: value for name, value in asked.items() if value}

    def matches(line: Line) -> bool:
        return line.get("level", "info") in worse and all(line.get(name) == value for name, value in wanted.items())

    tails = Tails(folder)
    found = [line for line in tails.fresh() if matches(line)]
    _print(found[len(found) - lines if lines < len(found) else 0 :], as_json)
    while follow:
        time.sleep(_PAUSE_SECONDS)
        _print(filter(matches, tails.fresh()), as_json)


@dataclass(slots=True)
class Tails:
    """The log files of a folder, each read as far as its whole lines go."""

    folder: Path
    read: dict[Path, int] = field(default_factory=dict)

    def fresh(self) -> list[Line]:
        """The lines that came since the last call, those of all files by time."""
        paths = sorted(self.folder.glob("*.log"))
        return sorted((line for path in paths for line in self._fresh_of(path)), key=_time)

    def _fresh_of(self, path: Path) -> Iterator[Line]:
        start = self.read.get(path, 0)
        with path.open("rb") as file:
            if file.seek(0, 2) < start:
                start = 0  # cut or made anew
            file.seek(start)
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return
        self.read[path] = start + len(whole) + 1
        for text in whole.decode(errors="replace").splitlines():
            yield parse(text, path.stem)


def parse(text: str, service: str) -> Line:
    """One line: JSON as the services write it, or a library's plain text."""
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
    """A line for people: time, service, what happened, and the rest as name=value."""
    level = str(line.get("level", "info"))
    rest = "  ".join(f"{name}={value}" for name, value in line.items() if name not in _OWN)
    text = Text(f"{str(line.get('timestamp', ''))[11:19]:8} {line.get('service', '')!s:11} ", style="dim")
    text.append(_harmless(str(line.get("event", ""))), style=_STYLES.get(level, "default"))
    text.append(f"  {_harmless(rest)}" if rest else "")
    if line.get("exception"):
        text.append("\n" + _harmless(str(line["exception"]), keep="\n"), style="red")
    return text


def _harmless(text: str, keep: str = "") -> str:
    """What devices say may hold terminal controls: they are shown, not obeyed."""
    return "".join(sign if sign.isprintable() or sign in keep else repr(sign)[1:-1] for sign in text)

"""`coterie trust import`: social graphs into the registry, in batches, resumable.

Files are read by the registry's own readers (`python -m services.trust rows`), which print NDJSON; this side sends it
in batches of whole lines, so that a batch may be repeated and an interrupted import goes on where it stopped.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from coterie.client import Platform
from coterie.errors import InvalidRequest, NotFound
from coterie.records import ImportProgress
from coterie_cli.commands.payments import moment
from coterie_cli.console import AsJson, Key, Mistake, Url, connect, err, show
from coterie_cli.processes import die_with_parent

BATCH_ROWS = 4_000
STOP_SECONDS = 5.0
IMPORT_EPILOG = """[bold]Examples[/]

coterie trust import facebook_combined.txt.gz --format snap --name facebook\n
coterie trust import meetings.csv --format interactions\n
coterie trust import rows.ndjson --format rows
"""


class Format(StrEnum):
    """What a file holds."""

    SNAP = "snap"
    INTERACTIONS = "interactions"
    ROWS = "rows"


Name = Annotated[str, typer.Option(help="Name of the import; the same name goes on behind the last line stored.")]
Owner = Annotated[str, typer.Option(help="Owner of devices without one of their own; left out: the import's name.")]
Evidence = Annotated[
    bool,
    typer.Option("--evidence/--no-evidence", help="Count each tie as one good interaction, or as a relation only."),
]
At = Annotated[str, typer.Option(help="Day or moment of the ties' interactions; left out: now.")]


def import_file(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="File, folder or archive.")],
    format: Annotated[Format, typer.Option("--format", help="What it holds.")],
    name: Name = "",
    owner: Owner = "",
    at: At = "",
    evidence: Evidence = True,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Import devices, ties and interactions from a file; run it again to go on after an interruption."""
    called = name or path.name.split(".")[0]
    with connect(url, key) as platform:
        if format is Format.ROWS:
            with path.open("rb") as rows:
                result = send(platform, rows)
        else:
            options = _options(called, owner, at, evidence)
            result = _import(platform, called, [format.value, str(path), *options])
    show(result.to_dict(), as_json, lambda: _summary(result))


@dataclass(frozen=True, slots=True)
class Imported:
    """An import and how far it is."""

    name: str
    lines: int
    progress: ImportProgress

    def to_dict(self) -> dict[str, Any]:
        """As JSON shows it: one flat object."""
        return {"name": self.name, "lines": self.lines, **self.progress.to_dict()}


def send(platform: Platform, lines: Iterable[bytes]) -> Imported:
    """Sends NDJSON, header first, batch by batch, with a bar; how far the import is then."""
    rows = iter(lines)
    first = next(rows, b"")
    try:
        header = json.loads(first)
        name, total = str(header["name"]), int(header.get("lines", 0))
    except (ValueError, TypeError, KeyError) as error:
        raise Mistake('the first line must be the header, such as {"name": "town", "owner_name": "Town"}') from error
    with _bar(name, total) as advance:
        for batch in _batches(rows):
            progress = _post(platform, first, batch)
            advance(progress.last_line)
    return Imported(name, total, progress)


def _batches(rows: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Rows some thousand at a time, at least one batch (an import without rows is begun too and tells its counts)."""
    batch: list[bytes] = []
    try:
        for row in rows:
            if len(batch) == BATCH_ROWS:
                yield batch
                batch = []
            batch.append(row)
    except Mistake:  # the rows before a bad line are good
        if batch:
            yield batch
        raise
    yield batch


def _post(platform: Platform, header: bytes, batch: list[bytes]) -> ImportProgress:
    try:
        return platform.import_rows(b"".join([header, *batch]))
    except InvalidRequest as error:
        raise Mistake(f"{error}; what came before is stored: mend it and run the same command again") from error


def _import(platform: Platform, name: str, arguments: list[str]) -> Imported:
    """Reads rows behind the last line stored and sends them."""
    stored = _stored(platform, name)
    if stored:
        err.print(f"going on after line {stored}")
    try:
        with _rows([*arguments, "--after", str(stored)]) as rows:
            return send(platform, rows)
    except KeyboardInterrupt:
        err.print("what was stored stays; the same command goes on behind it")
        raise


def _stored(platform: Platform, name: str) -> int:
    try:
        return platform.import_progress(name).last_line
    except NotFound:
        return 0


@contextmanager
def _rows(arguments: list[str]) -> Iterator[Iterator[bytes]]:
    """The lines that the registry's reader prints; its complaint is raised once the good lines are used up."""
    if importlib.util.find_spec("services") is None:
        raise Mistake(
            "the platform's services, which read these files, are not installed here; run this where they are, or "
            "import ready rows with --format rows"
        )
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            [sys.executable, "-m", "services.trust", "rows", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,  # Ctrl-C is ours to handle
            preexec_fn=die_with_parent,
        )
        assert process.stdout is not None
        try:
            with process.stdout:
                yield _until_complaint(process, process.stdout, complaints)
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)


def _until_complaint(process: subprocess.Popen[bytes], lines: Iterable[bytes], complaints: Any) -> Iterator[bytes]:
    yield from lines
    if process.wait():
        complaints.seek(0)
        said = complaints.read().decode(errors="replace").strip().splitlines()
        raise Mistake(said[-1] if said else f"the reader ended with code {process.returncode}")


@contextmanager
def _bar(name: str, total: int) -> Iterator[Any]:
    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TextColumn("lines"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=err) as progress:
        bar = progress.add_task(name, total=total or None)
        yield lambda done: progress.update(bar, completed=done)


def _options(name: str, owner: str, at: str, evidence: bool) -> list[str]:
    options = ["--name", name, "--at", str(moment("--at", at))]
    if owner:
        options += ["--owner", owner]
    return options if evidence else [*options, "--no-evidence"]


def _summary(result: Imported) -> str:
    got = result.progress
    counts = f"{got.devices} devices, {got.interactions} interactions, {got.relations} relations"
    return f"[bold]{result.name}[/]: {counts} (line {got.last_line})"

"""`coterie trust import`: import social graphs into the registry in batches, resumable.

The registry's readers (`python -m services.trust rows`) convert files to NDJSON; this command sends it in batches of
whole lines. Batches are idempotent, and an interrupted import resumes after the last stored line.
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


Name = Annotated[str, typer.Option(help="Name of the import; the same name resumes after the last stored line.")]
Owner = Annotated[str, typer.Option(help="Owner of devices that have none; by default the import's name.")]
Evidence = Annotated[
    bool,
    typer.Option("--evidence/--no-evidence", help="Count each tie as one good interaction, or as a relation only."),
]
At = Annotated[str, typer.Option(help="Day or moment of the ties' interactions; by default now.")]


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
    """Import devices, ties and interactions from a file; run it again to resume after an interruption."""
    import_name = name or path.name.split(".")[0]
    with connect(url, key) as platform:
        if format is Format.ROWS:
            with path.open("rb") as rows:
                result = send(platform, rows)
        else:
            options = _options(import_name, owner, at, evidence)
            result = _import(platform, import_name, [format.value, str(path), *options])
    show(result.to_dict(), as_json, lambda: _summary(result))


@dataclass(frozen=True, slots=True)
class Imported:
    """An import and its progress."""

    name: str
    lines: int
    progress: ImportProgress

    def to_dict(self) -> dict[str, Any]:
        """As JSON shows it: one flat object."""
        return {"name": self.name, "lines": self.lines, **self.progress.to_dict()}


def send(platform: Platform, lines: Iterable[bytes]) -> Imported:
    """Send NDJSON with its header in batches and show a bar; return the progress."""
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
    """Yield batches of rows, at least one, so that an import without rows also starts."""
    batch: list[bytes] = []
    try:
        for row in rows:
            if len(batch) == BATCH_ROWS:
                yield batch
                batch = []
            batch.append(row)
    except Mistake:  # the rows before an invalid line are valid
        if batch:
            yield batch
        raise
    yield batch


def _post(platform: Platform, header: bytes, batch: list[bytes]) -> ImportProgress:
    try:
        return platform.import_rows(b"".join([header, *batch]))
    except InvalidRequest as error:
        raise Mistake(f"{error}; earlier lines are stored: correct this line and run the same command again") from error


def _import(platform: Platform, name: str, arguments: list[str]) -> Imported:
    """Read the rows after the last stored line and send them."""
    stored = _stored(platform, name)
    if stored:
        err.print(f"resuming after line {stored}")
    try:
        with _rows([*arguments, "--after", str(stored)]) as rows:
            return send(platform, rows)
    except KeyboardInterrupt:
        err.print("stored lines stay; the same command resumes after them")
        raise


def _stored(platform: Platform, name: str) -> int:
    try:
        return platform.import_progress(name).last_line
    except NotFound:
        return 0


@contextmanager
def _rows(arguments: list[str]) -> Iterator[Iterator[bytes]]:
    """Run the registry's reader and yield its lines; raise its error message after the valid lines."""
    if importlib.util.find_spec("services") is None:
        raise Mistake(
            "the platform's services, which read these files, are not installed here; run this where they are, or "
            "import ready rows with --format rows"
        )
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "services.trust", "rows", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # this process handles Ctrl-C
            preexec_fn=die_with_parent,
        )
        assert process.stdout is not None
        try:
            with process.stdout:
                yield _lines_or_error(process, process.stdout, errors)
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)


def _lines_or_error(process: subprocess.Popen[bytes], lines: Iterable[bytes], errors: Any) -> Iterator[bytes]:
    yield from lines
    if process.wait():
        errors.seek(0)
        messages = errors.read().decode(errors="replace").strip().splitlines()
        raise Mistake(messages[-1] if messages else f"the reader ended with code {process.returncode}")


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
    progress = result.progress
    counts = f"{progress.devices} devices, {progress.interactions} interactions, {progress.relations} relations"
    return f"[bold]{result.name}[/]: {counts} (line {progress.last_line})"

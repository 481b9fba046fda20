"""Shared by all commands: connection options, output and error handling.

Results go to stdout (tables, or JSON with --json), everything else to stderr, so that output can be piped.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from coterie.client import Platform
from coterie.errors import (
    BadHome,
    Conflict,
    CoterieError,
    InvalidRequest,
    NotAllowed,
    NotFound,
    TooLarge,
    Unauthenticated,
)
from coterie.protocol.sanitise import sanitise
from coterie.protocol.transport import Backoff
from coterie.records.reading import plain

OK, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
DEFAULT_DATA = Path(".coterie")
DEFAULT_URL = "http://127.0.0.1:8080"
CLI_PATIENCE_SECONDS = 10.0
_ID = re.compile(r"\b[a-z]{3}_[0-9a-z]{26}\b")
_INPUT_ERRORS = (InvalidRequest, Unauthenticated, NotAllowed, NotFound, Conflict, TooLarge, BadHome)


class Screen(Console):
    """A console that sanitises all text, so that text from a device cannot control the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render to segments with control characters escaped."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(sanitise(segment.text), segment.style)


out = Screen(highlight=False)
err = Screen(stderr=True, highlight=False)

Url = Annotated[str, typer.Option("--url", envvar="COTERIE_URL", help="URL of the platform.", show_default=DEFAULT_URL)]
Key = Annotated[
    str,
    typer.Option(
        "--key",
        envvar="COTERIE_API_KEY",
        help="API key; by default from $COTERIE_API_KEY_FILE, then .coterie/admin.key.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


class Mistake(CoterieError):
    """Invalid input of the user; the message says what to do."""


def connect(url: str, key: str) -> Platform:
    """Connect to the platform of the options, or else of the environment and .coterie."""
    return Platform(url or default_url(), key or default_key(), backoff=Backoff(patience_seconds=CLI_PATIENCE_SECONDS))


def default_url() -> str:
    """Return the URL that `coterie up` wrote to .coterie, or the default."""
    note = DEFAULT_DATA / "url"
    return note.read_text().strip() if note.exists() else DEFAULT_URL


def default_key() -> str:
    """Return the key in the file $COTERIE_API_KEY_FILE, or else in .coterie/admin.key."""
    key_file = os.environ.get("COTERIE_API_KEY_FILE", "")
    path = Path(key_file) if key_file else DEFAULT_DATA / "admin.key"
    try:
        return path.read_text().strip()
    except OSError as error:
        raise Mistake(
            f"no API key ({path}: {error.strerror}): give --key, set COTERIE_API_KEY or COTERIE_API_KEY_FILE, or "
            "run this in the folder where `coterie up` runs"
        ) from error


def show(document: Any, as_json: bool, table: Callable[[], RenderableType]) -> None:
    """Print a result as JSON or as a table."""
    if as_json:
        out.print_json(json.dumps(plain(document)))
    else:
        text = table()
        out.print(text, soft_wrap=isinstance(text, str))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> RenderableType:
    """Make a table under a title. Cells are plain text; the first column and the first ids are never wrapped."""
    rows = [list(row) for row in rows]
    grid = Table(header_style="bold", box=None, pad_edge=False)
    with_ids = (index for index in range(len(columns)) if any(_ID.search(str(*row[index : index + 1])) for row in rows))
    whole = (0, next(with_ids, 0))
    for index, column in enumerate(columns):
        grid.add_column(escape(column), overflow="fold", no_wrap=index in whole)
    for row in rows:
        grid.add_row(*(escape(str(cell)) for cell in row))
    return Group(Text(title, style="bold"), grid) if title else grid


def when(moment: float) -> str:
    """Format a time; a dash for never."""
    return datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M:%S") if moment else "–"


def read_json(text: str, option: str) -> dict[str, Any]:
    """Parse a JSON object from text, or from the file `@path`."""
    try:
        content = Path(text[1:]).read_text() if text.startswith("@") else text
        value = json.loads(content or "{}")
    except (OSError, ValueError) as error:
        raise Mistake(f"{option} is not JSON ({error}); give an object such as '{{\"epochs\": 2}}' or @file") from error
    if not isinstance(value, dict):
        raise Mistake(f"{option} must be a JSON object, not {type(value).__name__}")
    return value


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn an exception into one red line and an exit code: 2 for input, 1 for failures, 130 for Ctrl-C."""
    try:
        yield
    except Mistake as error:
        raise SystemExit(_print_error(str(error), WRONG_INPUT)) from error
    except _INPUT_ERRORS as error:
        raise SystemExit(_print_error(_with_advice(error), WRONG_INPUT)) from error
    except CoterieError as error:
        raise SystemExit(_print_error(_with_advice(error), FAILED)) from error
    except OSError as error:
        raise SystemExit(
            _print_error(f"{error.filename or 'the system'}: {error.strerror or error}", FAILED)
        ) from error
    except KeyboardInterrupt as error:
        err.print("stopped")
        raise SystemExit(INTERRUPTED) from error


def _with_advice(error: CoterieError) -> str:
    advice = "; check --key" if isinstance(error, Unauthenticated) and "key" not in str(error) else ""
    request = getattr(error, "request_id", "") if getattr(error, "status", 0) >= 500 else ""
    return f"{error}{advice}{f' (request {request})' if request else ''}"


def _print_error(message: str, code: int) -> int:
    err.print(f"[bold red]error:[/] {escape(message)}", soft_wrap=True)
    return code

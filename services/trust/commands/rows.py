"""`python -m services.trust rows`: an edge list or a CSV file as the NDJSON that `POST /v1/trust/imports` takes.

The first line is the header, then one row a line. Rows are numbered the same way each time, so an import can resume
after the last stored line (`--after`). A tie of a social graph says that two devices know each other, not how they
fared: it becomes a relation and, by default, one good interaction of full length, which fades like any other evidence.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import orjson
import typer

from services.kit.errors import CoterieError, InvalidInput
from services.trust.readers.interactions import read_interactions
from services.trust.readers.lines import open_text
from services.trust.readers.snap import read_ties

FULL_SECONDS = 3_600.0
"""Length of a tie's interaction: beyond any sensible `COTERIE_TRUST_FULL_SECONDS`, so that it counts fully."""
TIE = "tie"
MOST_NAME_CHARACTERS = 60
Row = dict[str, Any]


class InvalidRows(InvalidInput):
    """An invalid option of `rows`."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Which rows to print: the import's name, the first line, when ties happened, and whether they are evidence."""

    name: str
    after: int = 0
    at: float = 0.0
    evidence: bool = True

    def tie(self, line: int, kind: str, a: str, b: str, strength: float, because: str) -> Row:
        """A relation of two devices and the good interaction that it stands for."""
        row: Row = {
            "line": line,
            "relation": {"kind": kind, "a": a, "b": b, "strength": strength, "because": because},
        }
        if self.evidence:
            row["interaction"] = {
                "device_a": a, "device_b": b, "positive": True, "duration_seconds": FULL_SECONDS, "at": self.at,
                "kind": TIE,
            }  # fmt: skip
        return row


@dataclass(frozen=True, slots=True)
class Source:
    """The header of an import, and its rows after the requested line."""

    owner: str
    synthetic: bool
    lines: int
    rows: Iterator[Row]
    public: bool = False
    """Whether that owner is a public one, such as a municipality."""


def snap(path: Path, wish: Wish) -> Source:
    """A SNAP edge list: its nodes as devices, each with its own owner, a line each from 1, then its ties.

    Node 7 of import `facebook` is device `facebook-7` of owner `facebook user 7`. The file is read twice, so a bad line
    is reported before anything is stored.
    """
    nodes: set[int] = set()
    last = 0
    for tie in read_ties(path):
        nodes.update((tie.a, tie.b))
        last = tie.line
    return Source(wish.name, False, len(nodes) + last, _snap_rows(path, sorted(nodes), wish))


def _snap_rows(path: Path, nodes: Sequence[int], wish: Wish) -> Iterator[Row]:
    for line, node in enumerate(nodes, start=1):
        if line > wish.after:
            yield {"line": line, "device": {"name": f"{wish.name}-{node}"}, "owner_name": f"{wish.name} user {node}"}
    for tie in read_ties(path, skip_lines=max(0, wish.after - len(nodes))):
        ends = f"{wish.name}-{tie.a}", f"{wish.name}-{tie.b}"
        yield wish.tie(len(nodes) + tie.line, "social", *ends, 1.0, f"a tie in {path.name}")


def interactions(path: Path, wish: Wish) -> Source:
    """Interactions of a CSV file; it names the devices."""
    rows: Iterator[Row] = (
        {
            "line": act.line,
            "interaction": {
                "device_a": act.a, "device_b": act.b, "positive": act.positive,
                "duration_seconds": act.duration_seconds, "at": act.at, "kind": "imported",
            },
        }
        for act in read_interactions(path, skip_lines=wish.after)
    )  # fmt: skip
    return Source(wish.name, False, _count_lines(path), rows)


def _count_lines(path: Path) -> int:
    with open_text(path, source="the source of the recording") as stream:
        try:
            return sum(1 for _ in stream)
        except (UnicodeDecodeError, OSError, EOFError):
            return 0  # the reader reports the line that cannot be read


HELP = """An edge list or a CSV file of interactions as the NDJSON that `POST /v1/trust/imports` takes.

The first line is the header, then one row a line. Rows are numbered the same way each time, so an import can
resume after the last stored line (--after)."""

app = typer.Typer(
    help=HELP, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)
Name = Annotated[str, typer.Option(help="Name of the import. Default: from the file's name.")]
Owner = Annotated[str, typer.Option(help="Owner of devices that name none.")]
After = Annotated[int, typer.Option(help="Skip lines up to this one.")]
At = Annotated[float, typer.Option(help="Unix seconds at which ties interacted; 0 = now.")]
WithEvidence = Annotated[
    bool, typer.Option("--evidence/--no-evidence", help="Whether a tie counts as a good interaction.")
]


@app.command("snap")
def print_snap(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="A SNAP edge list, plain or gzipped.")],
    name: Name = "",
    owner: Owner = "",
    after: After = 0,
    at: At = 0.0,
    evidence: WithEvidence = True,
) -> None:
    """Print the nodes and ties of a social graph.

    Example: python -m services.trust rows snap facebook_combined.txt.gz --name facebook
    """
    wish = make_wish(name or stem_of(path), after, at, evidence)
    print_rows(context.obj, wish, snap(path, wish), owner)


@app.command("interactions")
def print_interactions(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="CSV file with the columns a,b,positive,duration,at.")],
    name: Name = "",
    owner: Owner = "",
    after: After = 0,
    at: At = 0.0,
    evidence: WithEvidence = True,
) -> None:
    """Print recorded interactions, at the times in the file; they always count as evidence.

    Example: python -m services.trust rows interactions meetings.csv --owner "Ada"
    """
    wish = make_wish(name or stem_of(path), after, at, evidence)
    print_rows(context.obj, wish, interactions(path, wish), owner)


def main(argv: Sequence[str], out: BinaryIO | None = None) -> int:
    """Print header and rows; return 2 with a line on stderr for bad input, 1 when the reader closes the pipe."""
    stream = out or sys.stdout.buffer
    try:
        app(args=list(argv), prog_name="python -m services.trust rows", obj=stream)
    except CoterieError as error:
        stream.flush()  # rows before a bad line are valid
        sys.stderr.write(f"{error.message}\n")
        return 2
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def make_wish(name: str, after: int, at: float, evidence: bool) -> Wish:
    """Check the options common to all formats."""
    if not 1 <= len(name) <= MOST_NAME_CHARACTERS:
        raise InvalidRows(f"--name must have 1 to {MOST_NAME_CHARACTERS} characters, got {len(name)}")
    return Wish(name, after, at or time.time(), evidence)


def stem_of(path: Path) -> str:
    """Return the file's name up to its first dot: the default name of its import."""
    return path.name.split(".")[0]


def print_rows(stream: BinaryIO, wish: Wish, source: Source, owner: str) -> None:
    """Write the header and the rows as NDJSON."""
    header = {
        "name": wish.name, "owner_name": owner or source.owner, "synthetic": source.synthetic, "lines": source.lines,
    }  # fmt: skip
    if source.public:
        header["public"] = True
    stream.write(orjson.dumps(header) + b"\n")
    for row in source.rows:
        stream.write(orjson.dumps(row) + b"\n")
    stream.flush()

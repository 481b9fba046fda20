"""`python -m services.trust rows`: data files, or an invented city, as the NDJSON that `POST /v1/trust/imports` takes.

The first line is the header, then one row a line; rows are numbered the same way each time, so that an import goes on
behind the last one stored (`--after`). A tie of a social graph says that two know each other, not how they fared: it
becomes a relation and, unless told otherwise, one good interaction of full length, so that the pair starts with the
direct trust of a single good day, which fades and moves like any other evidence.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import numpy as np
import orjson
import typer

from services.kit.errors import CoterieError, InvalidInput
from services.trust.domain import relations
from services.trust.domain.city import KINDS, Habits, build_city
from services.trust.domain.population import PUBLIC_OWNER, UNKNOWN_MAKE, Population, Stays
from services.trust.domain.sampling import connected_sample
from services.trust.readers.gowalla import read_friends
from services.trust.readers.interactions import read_interactions
from services.trust.readers.lines import open_text
from services.trust.readers.santander import read_city
from services.trust.readers.snap import read_ties

FULL_SECONDS = 3_600.0
"""Length of a tie's interaction: beyond any sensible `COTERIE_TRUST_FULL_SECONDS`, so that it counts fully."""
TIE = "tie"
MOST_NAME_CHARACTERS = 60
Row = dict[str, Any]
_KIND_NAMES = {kind.code: kind.name for kind in KINDS}


class InvalidRows(InvalidInput):
    """An option of `rows` that makes no sense."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How rows are wanted: under which import's name, after which line, when ties happened, and whether they count."""

    name: str
    after: int = 0
    at: float = 0.0
    evidence: bool = True

    def tie(self, line: int, kind: str, a: str, b: str, strength: float, because: str) -> Row:
        """A relation of two devices and the good interaction it stands for."""
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
    """What an import begins with, and its rows behind the line asked for."""

    owner: str
    synthetic: bool
    lines: int
    rows: Iterator[Row]
    public: bool = False
    """Whether that owner is a municipality."""


def snap(path: Path, wish: Wish) -> Source:
    """A SNAP edge list: its nodes as devices, each with an owner of its own, a line each from 1, then its ties.

    Node 7 of import `facebook` is device `facebook-7` of owner `facebook user 7`. The file is read twice, so a bad line
    is found before anything is stored.
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


def gowalla(path: Path, wish: Wish, users: int, seed: int) -> Source:
    """A connected sample of Gowalla's people: a device each, with an owner of its own, then their friendships."""
    friends = list(read_friends(path))
    people = connected_sample(friends, users, np.random.default_rng(seed))
    inside = set(people)
    ties = [(a, b) for a, b in friends if a in inside and b in inside]
    return Source(wish.name, False, len(people) + len(ties), _gowalla_rows(people, ties, wish))


def _gowalla_rows(people: Sequence[int], ties: Sequence[tuple[int, int]], wish: Wish) -> Iterator[Row]:
    for line, user in enumerate(people, start=1):
        if line > wish.after:
            device = {"name": f"{wish.name}-{user}", "kind": "smartphone"}
            yield {"line": line, "device": device, "owner_name": f"{wish.name} user {user}"}
    for line, (a, b) in enumerate(ties, start=len(people) + 1):
        if line > wish.after:
            yield wish.tie(line, "social", f"{wish.name}-{a}", f"{wish.name}-{b}", 1.0, "friends in Gowalla")


def interactions(path: Path, wish: Wish) -> Source:
    """Interactions of a CSV file, devices by the names it has."""
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


def santander(path: Path, wish: Wish) -> Source:
    """The devices of the Santander files, and the relations derived from how they move."""
    return city(*read_city(path), wish, synthetic=False)


def city(population: Population, stays: Stays, wish: Wish, *, synthetic: bool) -> Source:
    """Devices, a line each from 1, then ties from co-location and meetings.

    Ownership and same make need no rows: the registry reads them off the devices' profiles.
    """
    devices, blocks = len(population), _met(population, stays)
    lines = devices + sum(len(block) for block in blocks)
    rows = (row for row in _city_rows(population, blocks, wish) if row["line"] > wish.after)
    return Source(f"{wish.name} municipality", synthetic, lines, rows, public=True)


def _met(population: Population, stays: Stays) -> list[relations.Relations]:
    kinds = (relations.co_location, relations.social, relations.social_public)
    return [block for derive in kinds for block in derive(population, stays)]


def _city_rows(population: Population, blocks: Sequence[relations.Relations], wish: Wish) -> Iterator[Row]:
    columns = (population.devices, population.owners, population.kinds, population.brands, population.models)
    spots = (population.x_metres, population.y_metres)
    line = 0
    for line, (device, owner, kind, brand, model, x, y) in enumerate(
        zip(*(column.tolist() for column in (*columns, *spots)), strict=True), start=1
    ):
        profile: Row = {
            "name": f"{wish.name}-{device}",
            "kind": _KIND_NAMES.get(kind, f"type {kind}"),
            "brand": "" if brand == UNKNOWN_MAKE else f"brand {brand}",
            "model": "" if model == UNKNOWN_MAKE else f"model {model}",
        }
        if not math.isnan(x):
            profile["location"] = {"x_metres": x, "y_metres": y}
        whose = "" if owner == PUBLIC_OWNER else f"{wish.name} user {owner}"
        yield {"line": line, "device": profile, "owner_name": whose}
    for block in blocks:
        kind_name = block.kind.value.replace("_", "-")
        for relation in block:
            line += 1
            ends = f"{wish.name}-{relation.a}", f"{wish.name}-{relation.b}"
            yield wish.tie(line, kind_name, *ends, relation.strength, relation.because)


def _count_lines(path: Path) -> int:
    with open_text(path, source="whoever recorded the interactions") as stream:
        try:
            return sum(1 for _ in stream)
        except (UnicodeDecodeError, OSError, EOFError):
            return 0  # the reader will say which line cannot be read


HELP = """Data files, or an invented city, as the NDJSON that `POST /v1/trust/imports` takes.

The first line is the header, then one row a line. Rows are numbered the same way each time, so that an import goes on
behind the last one stored (--after)."""

app = typer.Typer(
    help=HELP, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)
Name = Annotated[str, typer.Option(help="Name of the import; left out: the file's.")]
Owner = Annotated[str, typer.Option(help="Owner of devices without one of their own.")]
After = Annotated[int, typer.Option(help="Leave out lines up to this one.")]
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
    wish = _wish(name or _stem(path), after, at, evidence)
    _print(context.obj, wish, snap(path, wish), owner)


@app.command("santander")
def print_santander(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="The Santander files: their folder or tar archive.")],
    name: Name = "",
    owner: Owner = "",
    after: After = 0,
    at: At = 0.0,
    evidence: WithEvidence = True,
) -> None:
    """Print the devices of a real city and the ties that follow from how they move.

    Example: python -m services.trust rows santander siot.tar.gz --name santander
    """
    wish = _wish(name or _stem(path), after, at, evidence)
    _print(context.obj, wish, santander(path, wish), owner)


@app.command("gowalla")
def print_gowalla(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="Folder of loc-gowalla_edges.txt, plain or gzipped.")],
    users: Annotated[int, typer.Option(help="People in the sample.")] = 500,
    seed: Annotated[int, typer.Option(help="The same seed gives the same sample.")] = 0,
    name: Name = "",
    owner: Owner = "",
    after: After = 0,
    at: At = 0.0,
    evidence: WithEvidence = True,
) -> None:
    """Print a connected sample of Gowalla's people and their friendships, breadth first from one drawn by lot.

    Example: python -m services.trust rows gowalla data --users 500 --seed 7
    """
    wish = _wish(name or "gowalla", after, at, evidence)
    _print(context.obj, wish, gowalla(path, wish, users, seed), owner)


@app.command("interactions")
def print_interactions(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="CSV with the columns a,b,positive,duration,at.")],
    name: Name = "",
    owner: Owner = "",
    after: After = 0,
    at: At = 0.0,
    evidence: WithEvidence = True,
) -> None:
    """Print recorded interactions, which happened when the file says and always count.

    Example: python -m services.trust rows interactions meetings.csv --owner "Ada"
    """
    wish = _wish(name or _stem(path), after, at, evidence)
    _print(context.obj, wish, interactions(path, wish), owner)


@app.command("city")
def print_city(
    context: typer.Context,
    users: Annotated[int, typer.Option(help="People in it.")] = 100,
    seed: Annotated[int, typer.Option(help="The same seed gives the same city.")] = 0,
    days: Annotated[float, typer.Option(help="Days it is watched for.")] = 10.0,
    name: Name = "synthetic",
    owner: Owner = "",
    after: After = 0,
    at: At = 0.0,
    evidence: WithEvidence = True,
) -> None:
    """Print an invented city like Santander, labelled synthetic.

    Example: python -m services.trust rows city --users 200 --seed 7
    """
    wish = _wish(name, after, at, evidence)
    if not 0 < days <= 366:
        raise InvalidRows(f"--days must be more than 0 and at most 366, not {days:g}")
    made = build_city(users, seed, Habits(days=days))
    _print(context.obj, wish, city(made.population, made.stays, wish, synthetic=True), owner)


def main(argv: Sequence[str], out: BinaryIO | None = None) -> int:
    """Prints header and rows; 2 with a line on stderr when the input cannot be read, 1 when nobody reads the rows."""
    stream = out or sys.stdout.buffer
    try:
        app(args=list(argv), prog_name="python -m services.trust rows", obj=stream)
    except CoterieError as error:
        stream.flush()  # rows before a bad line are good
        sys.stderr.write(f"{error.message}\n")
        return 2
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _wish(name: str, after: int, at: float, evidence: bool) -> Wish:
    if not 1 <= len(name) <= MOST_NAME_CHARACTERS:
        raise InvalidRows(f"--name must have 1 to {MOST_NAME_CHARACTERS} characters, not {len(name)}")
    return Wish(name, after, at or time.time(), evidence)


def _stem(path: Path) -> str:
    return path.name.split(".")[0]


def _print(stream: BinaryIO, wish: Wish, source: Source, owner: str) -> None:
    header = {
        "name": wish.name, "owner_name": owner or source.owner, "synthetic": source.synthetic, "lines": source.lines,
    }  # fmt: skip
    if source.public:
        header["public"] = True
    stream.write(orjson.dumps(header) + b"\n")
    for row in source.rows:
        stream.write(orjson.dumps(row) + b"\n")
    stream.flush()

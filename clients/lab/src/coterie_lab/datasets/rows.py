"""`lab rows`: public data sets, or a generated city, as the rows that `coterie trust import --format rows` takes."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from coterie_lab.datasets.city import KINDS, Habits, build_city
from coterie_lab.datasets.gowalla import read_friends
from coterie_lab.datasets.sampling import connected_sample
from coterie_lab.datasets.santander import read_city
from services.kit.errors import CoterieError
from services.trust.commands.rows import (
    After,
    At,
    InvalidRows,
    Name,
    Owner,
    Row,
    Source,
    Wish,
    WithEvidence,
    make_wish,
    print_rows,
    stem_of,
)
from services.trust.domain import relations
from services.trust.domain.population import PUBLIC_OWNER, UNKNOWN_MAKE, Population, Stays

_KIND_NAMES = {kind.code: kind.name for kind in KINDS}
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Print public data sets, or a generated city, as rows for `coterie trust import --format rows`.",
)


@contextmanager
def _explained() -> Iterator[None]:
    """Print an error of the data as one line, and exit with 2; rows before a bad line stay good."""
    try:
        yield
    except CoterieError as error:
        sys.stdout.flush()
        sys.stderr.write(f"{error.message}\n")
        raise typer.Exit(2) from error


def gowalla(path: Path, wish: Wish, users: int, seed: int) -> Source:
    """A connected sample of Gowalla's people: one device and one owner each, then their friendships."""
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
        kind_name = block.kind.value
        for relation in block:
            line += 1
            ends = f"{wish.name}-{relation.a}", f"{wish.name}-{relation.b}"
            yield wish.tie(line, kind_name, *ends, relation.strength, relation.because)


@app.command("santander")
def print_santander(
    path: Annotated[Path, typer.Argument(help="The Santander files: their folder or tar archive.")],
    name: Name = "",
    owner: Owner = "",
    after: After = 0,
    at: At = 0.0,
    evidence: WithEvidence = True,
) -> None:
    """Print the devices of a real city and the ties that follow from how they move.

    Example: lab rows santander siot.tar.gz --name santander
    """
    with _explained():
        wish = make_wish(name or stem_of(path), after, at, evidence)
        print_rows(sys.stdout.buffer, wish, santander(path, wish), owner)


@app.command("gowalla")
def print_gowalla(
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

    Example: lab rows gowalla data --users 500 --seed 7
    """
    with _explained():
        wish = make_wish(name or "gowalla", after, at, evidence)
        print_rows(sys.stdout.buffer, wish, gowalla(path, wish, users, seed), owner)


@app.command("city")
def print_city(
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

    Example: lab rows city --users 200 --seed 7
    """
    with _explained():
        wish = make_wish(name, after, at, evidence)
        if not 0 < days <= 366:
            raise InvalidRows(f"--days must be more than 0 and at most 366, not {days:g}")
        made = build_city(users, seed, Habits(days=days))
        print_rows(sys.stdout.buffer, wish, city(made.population, made.stays, wish, synthetic=True), owner)

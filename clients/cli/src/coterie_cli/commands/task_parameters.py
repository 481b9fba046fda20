"""`coterie task parameters`: the parameters a task may have, from their declaration."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie.parameters import did_you_mean
from coterie.parameters.registry import Place, places
from coterie_cli.console import AsJson, Mistake, show, table


def parameters(
    name: Annotated[str, typer.Argument(help="Parameter, or part of its path, such as privacy or noise_max.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the parameters of tasks with their values, defaults and meaning."""
    known = places()
    chosen = [place for place in known if name in place.path]
    if not chosen:
        near = did_you_mean(name, [place.parameter.name for place in known])
        raise Mistake(f"no parameter {name!r}{near}; run `coterie task parameters` to list all of them")
    columns = ["parameter", "read by", "values", "default", "meaning"]
    rows = [_row(place) for place in chosen]
    document = [dict(zip(columns, row, strict=True)) for row in rows]
    show(document, as_json, lambda: table("", columns, rows))


def _row(place: Place) -> list[object]:
    item = place.parameter
    unit = f" Unit: {item.unit}." if item.unit else ""
    return [place.path, place.read_by, item.allowed, item.default_text, f"{item.help}{unit}"]

"""`coterie demo`: run a platform, devices and a task on this machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.markup import escape

from coterie_cli.console import FAILED, AsJson, Mistake, out, show, table
from coterie_cli.demos import DemoOptions, demos

EPILOG = """[bold]Examples[/]

coterie demo\n
coterie demo --garbage-device\n
coterie demo --list
"""


def demo(
    which: Annotated[str, typer.Argument(help="Which demo; --list shows them.")] = "fedavg",
    rounds: Annotated[int, typer.Option(min=0, help="Rounds; 0 = the demo's default.")] = 0,
    devices: Annotated[int, typer.Option(min=0, help="Devices; 0 = the demo's default.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of data, models and training.")] = 0,
    garbage_device: Annotated[
        bool, typer.Option("--garbage-device", help="One device delivers garbage and loses trust.")
    ] = False,
    list_them: Annotated[bool, typer.Option("--list", help="List the demos.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a demo: real services, real agents, one task, then tables of the results."""
    known = demos()
    if list_them:
        rows = [[item.name, item.about] for item in known.values()]
        show(dict(rows), as_json, lambda: table("", ["demo", "what it shows"], rows))
        return
    if which not in known:
        raise Mistake(f"no demo is called {which!r}; choose from {', '.join(known)}")
    result = known[which].run(DemoOptions(rounds, devices, seed, garbage_device, quiet=as_json))
    show(result, as_json, lambda: _closing(result))
    if result["state"] != "finished":
        raise typer.Exit(FAILED)


def _closing(result: dict[str, Any]) -> RenderableType:
    """Print the demo's tables, or those of federated averaging; return the closing line."""
    for item in result.get("tables", []):
        out.print(table(item["title"], item["columns"], item["rows"]))
    if "tables" not in result:
        _print_averaging(result)
    headline = result.get("headline") or f"{result['accuracy']:.1%} right"
    return f"\n{result['state']}: [bold]{escape(headline)}[/] in {result['seconds']:.1f} s"


def _print_averaging(result: dict[str, Any]) -> None:
    rounds = [[r["round"], f"{r['accuracy']:.1%}", f"{r['seconds']:.2f} s"] for r in result.get("rounds", [])]
    out.print(table("accuracy on digits held out from training", ["round", "accuracy", "time"], rows=rounds))
    devices = [
        [d["name"], d["samples"], " ".join(map(str, d["digits"])), d["delivered"], f"{d['contribution']:.1%}"]
        for d in result.get("devices", [])
    ]
    out.print(table("\ndevices", ["device", "samples", "digits it has", "rounds", "contribution"], devices))
    if result.get("trust"):
        _print_trust(result["trust"], result["devices"][0]["name"], result["devices"][-1]["name"])


def _print_trust(rounds: list[dict[str, Any]], honest: str, garbage: str) -> None:
    rows = [[r["round"], f"{r[honest]:.3f}", f"{r[garbage]:.3f}", r["did"]] for r in rounds]
    columns = ["round", f"in {honest}", f"in {garbage}", f"{garbage} was"]
    out.print(table("\nhow far honest devices trust two others, on average", columns, rows))

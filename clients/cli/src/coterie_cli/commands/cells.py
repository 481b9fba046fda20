"""`coterie cells`: base stations, and the policies that schedule their blocks."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from coterie import records
from coterie.records import Policy, PolicyState
from coterie_cli.console import FAILED, AsJson, Key, Mistake, Url, connect, out, read_json, show, table

app = typer.Typer(help="Base stations of multi-task learning, and scheduling policies.", no_args_is_help=True)
_PUT_EPILOG = """[bold]Examples[/]

coterie cells put north --x 0 --y 250 --blocks 3 --radius 300\n
coterie cells put roof --x 0 --y 0 --models 0 --models 1
"""
Cell = Annotated[str, typer.Argument(help="Cell's id.")]


@app.command("put", epilog=_PUT_EPILOG)
def put(
    cell: Cell,
    x: Annotated[float, typer.Option(help="Metres east.")],
    y: Annotated[float, typer.Option(help="Metres north.")],
    blocks: Annotated[int, typer.Option(min=1, help="Resource blocks: devices served at a time.")] = 4,
    power: Annotated[float, typer.Option(help="Watts a device may transmit with.")] = 0.01,
    bandwidth: Annotated[float, typer.Option(help="Hertz of a block.")] = 150e3,
    delay_limit: Annotated[float, typer.Option(help="Longest upload in seconds.")] = 0.4,
    radius: Annotated[float, typer.Option(help="Radius of the cell in metres.")] = 400.0,
    models: Annotated[list[int], typer.Option(help="Model lines it serves; by default all.")] = [],  # noqa: B006 - typer reads it only
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Register a base station, or change one."""
    with connect(url, key) as platform:
        stored = platform.put_cell(
            cell,
            x_metres=x,
            y_metres=y,
            blocks=blocks,
            power_watts=power,
            bandwidth_hertz=bandwidth,
            delay_limit_seconds=delay_limit,
            radius_metres=radius,
            models=list(models),
        )
    show(stored, as_json, lambda: f"cell [bold]{cell}[/] at ({x:g}, {y:g}) m, {blocks} blocks, {radius:g} m")


@app.command("list", epilog="[bold]Example[/]  coterie cells list")
def list_cells(url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """List base stations."""
    with connect(url, key) as platform:
        cells = platform.cells()
    columns = ["id", "x, m", "y, m", "blocks", "radius, m", "limit, s", "models", "station"]
    rows = [
        [c.id, c.x_metres, c.y_metres, c.blocks, c.radius_metres, c.delay_limit_seconds, _models(c), _station(c)]
        for c in cells
    ]
    show(cells, as_json, lambda: table("", columns, rows))


@app.command("remove", epilog="[bold]Example[/]  coterie cells remove north")
def remove(cell: Cell, url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """Remove a base station; new plans no longer use it."""
    with connect(url, key) as platform:
        platform.remove_cell(cell)
    show({"removed": cell}, as_json, lambda: f"cell [bold]{cell}[/] is removed")


_TRAIN_EPILOG = """[bold]Examples[/]

coterie cells train --users 12 --models 2 --wait\n
coterie cells train --users 12 --models 2 --network set    [dim]the paper's learner[/]\n
coterie cells train --users 12 --models 2 --network set --learner iql --penalty fixed
"""


@app.command("train", epilog=_TRAIN_EPILOG)
def train(
    users: Annotated[int, typer.Option(min=1, help="Devices expected.")],
    models: Annotated[int, typer.Option(min=1, help="Model lines of the tasks it is for.")] = 2,
    learner: Annotated[str, typer.Option(help="vdn or iql.")] = "vdn",
    penalty: Annotated[str, typer.Option(help="dynamic or fixed.")] = "dynamic",
    network: Annotated[str, typer.Option(help="pointer, or set: one value for each set of devices.")] = "pointer",
    steps: Annotated[int, typer.Option(min=0, help="Training steps; 0 = the default.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed.")] = 0,
    radio: Annotated[str, typer.Option(help="Radio constants of the tasks it is for: JSON or @file.")] = "{}",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the policy is ready.")] = False,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Train a scheduling policy for the current cells in the background."""
    if learner not in ("vdn", "iql") or penalty not in ("dynamic", "fixed") or network not in ("pointer", "set"):
        raise Mistake("--learner must be vdn or iql, --penalty dynamic or fixed, --network pointer or set")
    constants = read_json(radio, "--radio")
    with connect(url, key) as platform:
        policy = platform.train_policy(
            users=users,
            models=models,
            learner=learner,
            penalty=penalty,
            network=network,
            steps=steps,
            seed=seed,
            radio=constants,
        )
        while wait and policy.state == PolicyState.TRAINING:
            time.sleep(1.0)
            policy = next(item for item in platform.policies() if item.id == policy.id)
            if not as_json:
                out.print(f"{policy.progress:.0%}  reward {policy.reward:.1f}")
    show(policy, as_json, lambda: f"policy [bold]{policy.id}[/] is {policy.state} {policy.reason}")
    if policy.state == PolicyState.FAILED:
        raise typer.Exit(FAILED)


@app.command("policies", epilog="[bold]Example[/]  coterie cells policies")
def policies(url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """List scheduling policies, newest first."""
    with connect(url, key) as platform:
        known = platform.policies()
    show(known, as_json, lambda: table("", _COLUMNS, [_row(policy) for policy in known]))


_COLUMNS = ["id", "learner", "network", "penalty", "layout", "trained", "reward", "state"]


def _row(policy: Policy) -> list[object]:
    state = f"{policy.state}: {policy.reason}" if policy.reason else policy.state
    trained, reward = f"{policy.progress:.0%}", f"{policy.reward:.1f}"
    return [policy.id, policy.learner, policy.network, policy.penalty, policy.layout[:8], trained, reward, state]


def _station(cell: records.Cell) -> str:
    return "serves" if cell.station else "-"


def _models(cell: records.Cell) -> str:
    return " ".join(map(str, cell.models)) or "all"

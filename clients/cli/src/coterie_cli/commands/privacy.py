"""`coterie privacy`: what a device has given away, by its own ledger and by the platform's account."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from coterie.home import DeviceHome
from coterie.privacy.ledger import LedgerError, Limit, PrivacyLedger
from coterie_cli.console import AsJson, Key, Mistake, Url, connect, show, table, when

app = typer.Typer(help="Privacy spent by devices.", no_args_is_help=True)


@app.command("show", epilog="[bold]Examples[/]  coterie privacy show --home phone\n\ncoterie privacy show dev_01jd0d…")
def show_privacy(
    device: Annotated[str, typer.Argument(help="Device's id, to ask the platform.")] = "",
    home: Annotated[Path | None, typer.Option(help="Device's folder, to read its own ledger.")] = None,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Show the privacy a device has spent."""
    if (home is None) == (not device):
        raise Mistake("give a device's id or --home with its folder, one of them")
    if home is not None:
        _show_ledger(home, as_json)
        return
    with connect(url, key) as platform:
        report = platform.privacy(device)
    rows = [[task.task_id, task.rounds, task.epsilon, task.unit] for task in report.tasks]
    title = f"{device}: ε = {report.epsilon} at δ = {report.delta:g}"
    show(report, as_json, lambda: table(title, ["task", "rounds", "ε", "protects"], rows))


@app.command("limit", epilog="[bold]Example[/]  coterie privacy limit --home phone --epsilon 20 --allow-raw")
def set_limit(
    home: Annotated[Path, typer.Option(help="Device's folder.")],
    epsilon: Annotated[float, typer.Option(min=0.0, help="Most ε in all, over all tasks.")],
    delta: Annotated[float, typer.Option(help="δ of that ε.")] = 1e-5,
    unit: Annotated[str, typer.Option(help="What it protects: device or example.")] = "device",
    allow_raw: Annotated[
        bool, typer.Option("--allow-raw", help="Let updates go without noise to devices that are trusted.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Set how much privacy a device may spend; work that would cross the limit is declined."""
    if unit not in ("device", "example"):
        raise Mistake(f"--unit must be device or example, not {unit!r}")
    if not (home / "device.json").exists():
        raise Mistake(f"{home} holds no device; give the folder of a registered device")
    try:
        limit = Limit(epsilon, delta, unit, allow_raw)  # type: ignore[arg-type]  # checked above
        DeviceHome(home).ledger().set_limit(limit)
    except (LedgerError, ValueError) as error:
        raise Mistake(str(error)) from error
    said = f"ε up to {epsilon:g} at δ = {delta:g} per {unit}, {'raw to trusted devices' if allow_raw else 'never raw'}"
    show(asdict(limit), as_json, lambda: said)


def _show_ledger(home: Path, as_json: bool) -> None:
    if not (home / "ledger.db").exists():
        raise Mistake(f"{home} holds no privacy ledger; give the folder of a registered device")
    try:
        ledger: PrivacyLedger = DeviceHome(home).ledger()
        spent, limit, history = ledger.spent(), ledger.limit, ledger.history()
    except LedgerError as error:
        raise Mistake(str(error)) from error
    document = {
        "epsilon": _finite(spent.epsilon),
        "delta": spent.delta,
        "unit": spent.unit,
        "releases": spent.releases,
        "raw_releases": spent.raw_releases,
        "limit_epsilon": limit.epsilon,
        "history": [
            {"task": e.charge.task, "round": e.charge.round, "purpose": e.charge.purpose, "at": e.charged_at}
            for e in history
        ],
    }
    rows = [[e.charge.task, e.charge.round, e.charge.purpose, e.charge.mechanism, when(e.charged_at)] for e in history]
    raw = f"; {spent.raw_releases} raw releases besides" if spent.raw_releases else ""
    title = f"ε = {spent.epsilon:.4g} of {limit.epsilon:g} at δ = {spent.delta:g}, protects one {spent.unit}{raw}"
    show(document, as_json, lambda: table(title, ["task", "round", "purpose", "mechanism", "when"], rows))


def _finite(value: float) -> float | str:
    return value if value != float("inf") else "inf"

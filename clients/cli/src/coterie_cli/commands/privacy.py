"""`coterie privacy`: privacy spent by a device, from its own ledger or the platform's account."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from coterie.agent.home import DeviceHome
from coterie.privacy.accounting import NOTHING, Charge, Question
from coterie.privacy.ledger import Entry, LedgerError, Limit, PrivacyLedger, Spent
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
    rows = [[task.task_id, task.rounds, task.in_words] for task in report.tasks]
    title = f"{device} at δ = {report.delta:g}: {report.in_words}"
    show(report, as_json, lambda: table(title, ["task", "rounds", "privacy"], rows))


@app.command("limit", epilog="[bold]Example[/]  coterie privacy limit --home phone --epsilon 20 --allow-raw")
def set_limit(
    home: Annotated[Path, typer.Option(help="Device's folder.")],
    epsilon: Annotated[float, typer.Option(min=0.0, help="Most ε over all tasks.")],
    delta: Annotated[float, typer.Option(help="δ of that ε.")] = 1e-5,
    unit: Annotated[str, typer.Option(help="What it protects: device or example.")] = "device",
    allow_raw: Annotated[
        bool, typer.Option("--allow-raw", help="Allow updates without noise to trusted devices.")
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
    text = f"ε up to {epsilon:g} at δ = {delta:g} per {unit}, {'raw to trusted devices' if allow_raw else 'never raw'}"
    show(asdict(limit), as_json, lambda: text)


def _show_ledger(home: Path, as_json: bool) -> None:
    if not (home / "ledger.db").exists():
        raise Mistake(f"{home} holds no privacy ledger; give the folder of a registered device")
    try:
        ledger: PrivacyLedger = DeviceHome(home).ledger()
        spent, limit, history, epsilons = ledger.spent(), ledger.limit, ledger.history(), ledger.epsilons()
        is_owners, unknown, (sums, rho) = ledger.is_owners, ledger.unknown, ledger.sums_alone()
    except LedgerError as error:
        raise Mistake(str(error)) from error
    document = {
        "epsilon": _finite(spent.epsilon),
        "delta": spent.delta,
        "unit": spent.question.unit,
        "adjacency": spent.question.adjacency,
        "epsilons": [
            {"unit": about.unit, "adjacency": about.adjacency, "in_words": str(about), "epsilon": _finite(epsilon)}
            for about, epsilon in epsilons.items()
        ],
        "releases": spent.releases,
        "raw_releases": spent.raw_releases,
        "unknown_releases": unknown,
        "secure_sums": sums,
        "epsilon_of_sums_if_clerks_collude": _alone(rho, spent.delta),
        "epsilon_with_raw": _finite(math.inf if spent.raw_releases else spent.epsilon),
        "limit_epsilon": limit.epsilon,
        "limit_by_owner": is_owners,
        "allow_raw": limit.allow_raw,
        "history": [
            {
                "task": e.charge.task,
                "round": e.charge.round,
                "purpose": e.charge.purpose,
                "adjacency": e.charge.adjacency,
                "at": e.charged_at,
            }
            for e in history
        ],
    }
    parts = (_totals(spent, limit, epsilons), _restored(unknown), _sums(sums, rho, spent.delta), _raw(limit, is_owners))
    listed = _releases(history)
    show(document, as_json, lambda: Group(*parts, listed))


def _totals(spent: Spent, limit: Limit, epsilons: dict[Question, float]) -> RenderableType:
    noised = f"{spent.releases} noised releases: " if spent.raw_releases else ""
    title = f"{noised}ε = {spent.epsilon:.4g} of {limit.epsilon:g} at δ = {spent.delta:g} for {limit.question}"
    rows = [[f"{epsilon:.4g}" if epsilon < math.inf else "∞", str(about)] for about, epsilon in epsilons.items()]
    if spent.raw_releases:
        rows.append(["∞", f"with the {spent.raw_releases} releases that left without noise"])
    return table(title, ["ε", "for"], rows)


def _restored(unknown: int) -> RenderableType:
    if not unknown:
        return Text("")
    return Text(f"{unknown} releases are MISSING: this ledger was restored from an older copy and is incomplete.\n")


def _alone(rho: float, delta: float) -> float:
    """Return the ε of Gaussian releases with this total ρ."""
    return replace(NOTHING, gaussian_rho=rho).epsilon(delta)


def _sums(sums: int, rho: float, delta: float) -> RenderableType:
    if not sums:
        return Text("")
    return Text(
        f"The charge of {sums} secure sums assumes no more colluding devices than their terms allow.\n"
        f"If enough clerks colluded to open single updates, these sums alone would cost ε = {_alone(rho, delta):.4g} "
        "(the whole device left out).\n"
    )


def _raw(limit: Limit, by_owner: bool) -> RenderableType:
    if limit.allow_raw:
        return Text("Without noise: allowed, to devices that are trusted and in tasks without noise.\n")
    if by_owner:
        return Text("Without noise: never. Tasks without noise are declined.\n")
    return Text("Without noise: the owner has set no limit, so joining a task without noise counts as consent.\n")


def _releases(history: list[Entry]) -> RenderableType:
    rows = [
        [e.charge.task, e.charge.round, e.charge.purpose, e.charge.mechanism, _compared(e.charge), when(e.charged_at)]
        for e in history
    ]
    return table("", ["task", "round", "purpose", "mechanism", "charged for", "when"], rows)


def _compared(charge: Charge) -> str:
    return "nothing hidden" if charge.mechanism == "raw" else str(Question(charge.unit, charge.adjacency))


def _finite(value: float) -> float | str:
    return value if value != float("inf") else "inf"

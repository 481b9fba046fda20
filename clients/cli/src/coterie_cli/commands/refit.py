"""`coterie task refit`: the quality model of clusters fitted to tasks of your own. [SCFL] eqs (13), (14)"""

from __future__ import annotations

import math
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from coterie import records
from coterie.client import Platform
from coterie_cli.console import AsJson, Key, Mistake, Url, connect, show, table

app = typer.Typer()
FEWEST = 5
"""Tasks that five constants need."""
_EPILOG = """[bold]Examples[/]

coterie task refit noise-0 noise-1 noise-2 noise-3 noise-4\n
coterie task refit noise-0 noise-1 noise-2 noise-3 noise-4 --json > fitted.json
"""


@app.command("refit", epilog=_EPILOG)
def refit(
    tasks: Annotated[list[str], typer.Argument(help="Ids or names of tasks with different noise, five or more.")],
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Fit what noise and uneven data cost your model, from tasks that ended; the answer goes under "topology"."""
    if len(set(tasks)) < FEWEST:
        raise Mistake(f"five constants need {FEWEST} tasks with different noise, {len(set(tasks))} came; run some more")
    with connect(url, key) as platform:
        found = [platform.find_task(task) for task in dict.fromkeys(tasks)]
        measured = [measured_run(platform, task) for task in found]
        answer = platform.what_if("quality", {"measured": measured})
    names = [task.specification.name for task in found]
    show(
        {"tasks": [task.id for task in found], "measured": measured, **answer},
        as_json,
        lambda: _fit(names, measured, answer),
    )


def measured_run(platform: Platform, task: records.Task) -> dict[str, float]:
    """A task as one measured run: the mean noise and γ of its devices, and the figures of its newest measured model.

    What the publisher's own evaluator measured counts before what devices say.
    """
    versions = [model for model in platform.models(task.id) if _figures(model)]
    if not versions:
        raise Mistake(
            f"{task.specification.name}: no version has both a loss and an accuracy; devices tell them of public test "
            "samples (public_test_data=True), or run coterie task evaluate"
        )
    figures = _figures(max(versions, key=lambda model: model.version))
    seats = [seat for seat in platform.plan(task.id).seats if seat.role != "idle"]
    own = task.specification.parameters.get("topology", {}).get("non_iid", 1.0)
    declared = [min(each.non_iid or own, own) for each in platform.enrolments(task.id)]
    return {
        "noise": fmean(seat.noise_multiplier for seat in seats),
        "non_iid": fmean(declared) if declared else own,
        "loss": figures["loss"],
        "accuracy": 100.0 * figures["accuracy"],
    }


def _figures(model: records.Model) -> dict[str, float]:
    """Loss and accuracy of a version, or nothing."""
    for told in (model.evaluated, model.metrics):
        if all(math.isfinite(told.get(name, math.nan)) for name in ("loss", "accuracy")):
            return {name: float(told[name]) for name in ("loss", "accuracy")}
    return {}


def _fit(names: list[str], measured: list[dict[str, float]], answer: Any) -> RenderableType:
    rows = [
        [name, f"{run['noise']:.3g}", f"{run['non_iid']:.3g}", f"{run['loss']:.4g}", f"{loss:+.2g}", f"{accuracy:+.2g}"]
        for name, run, loss, accuracy in zip(
            names, measured, answer["loss_residuals"], answer["accuracy_residuals"], strict=True
        )
    ]
    fit = ", ".join(f"{constant:.4g}" for constant in answer["loss_fit"])
    title = (
        f"loss_fit [{fit}], quality_offset {answer['quality_offset']:.4g}, quality_slope "
        f"{answer['quality_slope']:.4g}\n"
        f"error of the fit: loss {answer['loss_rmse']:.3g}, accuracy {answer['accuracy_rmse']:.3g} points"
    )
    return table(title, ["task", "noise", "γ", "loss", "loss off by", "accuracy off by"], rows)

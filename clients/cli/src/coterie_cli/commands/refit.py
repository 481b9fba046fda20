"""`coterie task refit`: fit constants of the planner or of the price to your own tasks.

Clusters: the quality model, [SCFL] eqs (13), (14). Markets: the curvature β/μ², [MPPFL] eq. (1).
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from coterie import records
from coterie.client import Platform
from coterie_cli.console import AsJson, Key, Mistake, Url, connect, show, table

app = typer.Typer()
FEWEST = 5
"""Least number of tasks for five constants."""
MARKET = "stackelberg"
BYTES_PER_ELEMENT = 4
_EPILOG = """[bold]Examples[/]

coterie task refit noise-0 noise-1 noise-2 noise-3 noise-4\n
coterie task refit noise-0 noise-1 noise-2 noise-3 noise-4 --json > fitted.json\n
coterie task refit market-1 market-2   [dim]markets: the curvature[/]
"""


@app.command("refit", epilog=_EPILOG)
def refit(
    tasks: Annotated[
        list[str], typer.Argument(help="Ids or names of tasks with different noise: five or more, or any market.")
    ],
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Fit the cost of noise and uneven data from ended tasks; put the result under "topology".

    From markets, which sell different budgets in each round, fit the curvature β/μ²; put it under "pricing".
    """
    with connect(url, key) as platform:
        result = [platform.find_task(task) for task in dict.fromkeys(tasks)]
        if all(task.specification.incentive == MARKET for task in result):
            question = sold_rounds(platform, result)
            market = platform.what_if("curvature", question)
            everything = {"tasks": [task.id for task in result], **question, **market}
            show(everything, as_json, lambda: _curvature(question, market))
            return
        if len(result) < FEWEST:
            raise Mistake(f"five constants need {FEWEST} tasks with different noise, got {len(result)}; run some more")
        answer = platform.what_if("quality", {"tasks": [task.id for task in result]})
    names = [task.specification.name for task in result]
    show({"tasks": [task.id for task in result], **answer}, as_json, lambda: _fit(names, answer))


def sold_rounds(platform: Platform, tasks: list[records.Task]) -> dict[str, Any]:
    """Collect loss, samples and sold budgets of every measured round of markets.

    All tasks must have the same model size and clip norm, because the curvature belongs to a model.
    """
    rounds, sizes, norms = list[dict[str, Any]](), set[int](), set[float]()
    for task in tasks:
        samples = {enrolment.device_id: enrolment.samples for enrolment in platform.enrolments(task.id)}
        models = {model.version: model for model in platform.models(task.id)}
        sizes |= {model.size_bytes for model in models.values()}
        norms.add(float(task.specification.training.get("clip_norm", 1.0)))
        sold: dict[int, list[dict[str, float]]] = {}
        for payment in platform.payments(task=task.id):
            if payment.budget > 0:
                part = {"samples": float(samples.get(payment.device_id, 1)), "budget": payment.budget}
                sold.setdefault(payment.round, []).append(part)
        for number in sorted(sold):
            measured = [models[number].evaluated, models[number].agreed] if number in models else []
            losses = [figures["loss"] for figures in measured if math.isfinite(figures.get("loss", math.nan))]
            if losses:
                rounds.append({"round": number, "loss": float(losses[0]), "delivered": sold[number]})
    if len(sizes) > 1 or len(norms) > 1:
        raise Mistake("these markets have different models or clip norms; name tasks of one model")
    if not rounds:
        raise Mistake(
            "no round has a measured loss; at least three devices of three owners must report it for public test "
            "samples (public_test_data=True), or run coterie task evaluate"
        )
    return {"measured": rounds, "elements": max(sizes) / BYTES_PER_ELEMENT, "clip_norm": max(norms)}


def _curvature(question: dict[str, Any], answer: Any) -> RenderableType:
    rows = [
        [item["round"], len(item["delivered"]), f"{sum(part['budget'] for part in item['delivered']):.3g}",
         f"{item['loss']:.4g}", f"{off:+.2g}"]
        for item, off in zip(question["measured"], answer["residuals"], strict=True)
    ]  # fmt: skip
    title = (
        f"curvature {answer['curvature']:.4g} ± {answer['deviation']:.2g}\n"
        f"error of the fit: loss {answer['rmse']:.3g}, best loss {answer['best_loss']:.4g}"
    )
    if answer["status"] == "flat":
        title += "\nmore noise did not increase the loss: keep accuracy_weight, or measure rounds with other budgets"
    return table(title, ["round", "devices", "ρ sold", "loss", "loss off by"], rows)


def _fit(names: list[str], answer: Any) -> RenderableType:
    rows = [
        [name, f"{run['noise']:.3g}", f"{run['non_iid']:.3g}", f"{run['loss']:.4g}", f"{loss:+.2g}", f"{accuracy:+.2g}"]
        for name, run, loss, accuracy in zip(
            names, answer["measured"], answer["loss_residuals"], answer["accuracy_residuals"], strict=True
        )
    ]
    fit = ", ".join(f"{constant:.4g}" for constant in answer["loss_fit"])
    title = (
        f"loss_fit [{fit}], quality_offset {answer['quality_offset']:.4g}, quality_slope "
        f"{answer['quality_slope']:.4g}\n"
        f"error of the fit: loss {answer['loss_rmse']:.3g}, accuracy {answer['accuracy_rmse']:.3g} points"
    )
    return table(title, ["task", "noise", "γ", "loss", "loss off by", "accuracy off by"], rows)

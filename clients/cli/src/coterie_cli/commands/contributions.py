"""`coterie task evaluate` and `coterie task contributions`: the value of each device's updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Annotated, Any

import typer

from coterie.client import Platform
from coterie.learning.evaluation import Tensors, Worth, evaluate
from coterie.learning.measurement import measure
from coterie.records import Model
from coterie.records import Task as TaskRecord
from coterie.records.enums import RoundMode
from coterie_cli.commands.results import Task
from coterie_cli.console import AsJson, Key, Mistake, Url, connect, err, show, table

app = typer.Typer()
Figures = Callable[[Tensors], Mapping[str, float]]
_EVALUATE_EPILOG = """[bold]Examples[/]

coterie task evaluate digits --sample digits\n
coterie task evaluate eyes --metrics clinic.evaluation:figures\n
coterie task evaluate eyes --worth clinic.evaluation:accuracy
"""


@app.command("evaluate", epilog=_EVALUATE_EPILOG)
def evaluate_task(
    task: Task,
    sample: Annotated[str, typer.Option(help="Measure on the held-out samples of a built-in set: digits.")] = "",
    metrics: Annotated[
        str, typer.Option(help="Your file.py:function or module:function: tensors by name in, metrics by name out.")
    ] = "",
    worth: Annotated[
        str, typer.Option(help="Your file.py:function or module:function: tensors by name in, their value out.")
    ] = "",
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Measure each model version of a task with your own data, until the task has ended.

    Compute contributions too with --worth, or with --sample if the task pays for them or keeps updates.
    """
    figures, value = _evaluators(sample, metrics, worth)
    with connect(url, key) as platform, connect(url, key) as second:
        result = platform.find_task(task)
        is_valued = value is not None and (not sample or _is_valued(result))
        with ThreadPoolExecutor(1) as pool:
            measured = pool.submit(measure, second, result.id, figures, on_version=_print_version) if figures else None
            rounds = (
                evaluate(platform, result.id, value, on_round=_print_round) if value is not None and is_valued else 0
            )
            versions = measured.result() if measured is not None else 0
    document = {"task_id": result.id, "versions": versions, "rounds": rounds}
    show(document, as_json, lambda: f"{result.id}: {versions} versions measured, {rounds} rounds valued")


@app.command("contributions", epilog="[bold]Example[/]  coterie task contributions digits --round 3")
def contributions(
    task: Task,
    round: Annotated[int, typer.Option(min=0, help="Only this round; 0 = all rounds.")] = 0,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Show each device's contribution to a task's models, the largest first."""
    with connect(url, key) as platform:
        result = sorted(platform.contributions(platform.find_task(task).id, round=round), key=lambda item: -item.value)
        names = _names(platform) if result else {}
    rows = [[names.get(c.device_id, ""), c.device_id, c.rounds, f"{c.value:+.5f}", f"{c.error:.5f}"] for c in result]
    show(result, as_json, lambda: table("", ["device", "id", "rounds", "contribution", "± error"], rows))


def _names(platform: Platform) -> dict[str, str]:
    return {device.id: device.name for device in platform.devices()} if platform.me().role == "admin" else {}


def _print_round(round: int, players: int, models: int) -> None:
    err.print(f"round {round}: {players} updates valued by {models} models", markup=False)


def _print_version(model: Model, metrics: Mapping[str, float]) -> None:
    text = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items() if name != "samples")
    err.print(f"version {model.version}: {text}", markup=False)


def _is_valued(task: TaskRecord) -> bool:
    spec = task.specification
    return spec.incentive == "contribution" or spec.keep_rounds > 0 or spec.mode is RoundMode.ASYNCHRONOUS


def _evaluators(sample: str, metrics: str, worth: str) -> tuple[Figures | None, Worth | None]:
    if bool(sample) == bool(metrics or worth):
        raise Mistake("give --sample digits, or --metrics file.py:function, --worth file.py:function or both")
    if sample == "digits":
        measure_digits = _digits()
        return measure_digits, lambda tensors: measure_digits(tensors)["accuracy"]
    if sample:
        raise Mistake(f"no sample is called {sample!r}; there is digits")
    return _function(metrics, "--metrics"), _function(worth, "--worth")


def _function(name: str, option: str) -> Any:
    if not name:
        return None
    from coterie.samples import BadSource
    from coterie_cli.sources import errors_of, load_function

    try:
        function = load_function(name)
    except BadSource as error:
        raise Mistake(f"{option}: {error}") from error

    def guarded(tensors: Tensors) -> Any:
        with errors_of(name):
            return function(tensors)

    return guarded


def _digits() -> Figures:
    from coterie.learning.torch_learner import TorchLearner
    from coterie.samples import digits, digits_model

    held_out = digits(1).test
    trainer = TorchLearner(digits_model(), held_out)
    turn = Lock()

    def measured(tensors: Tensors) -> dict[str, float]:
        with turn:
            trainer.load(tensors)
            return trainer.evaluate()

    return measured

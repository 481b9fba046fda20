"""Metrics and rounds of a task."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from coterie.learning.metrics import headed
from coterie.records import Round
from services.console.components.blocks import card, empty, note
from services.console.components.charts import chart, lines, palette
from services.console.components.contexts import PageContext
from services.console.components.tables import Column, state_cell, table
from services.console.components.task_watch import Watch
from services.console.domain import words
from services.console.domain.names import Names
from services.console.domain.progress import curves, figure_of, metric_names, warnings_of

DEFAULT_CURVES = 2
COLUMNS = (
    Column("number", "Round", "number"),
    Column("state", "State", "chip"),
    Column("delivered", "Delivered", "bar"),
    Column("quorum", "Needed", "number"),
    Column("took", "Duration", "number"),
    Column("opened", "Opened"),
    Column("plan", "Plan", "number"),
    Column("attempt", "Attempt", "number"),
)


async def show(context: PageContext, watch: Watch, names: Names) -> None:
    """Draw metric curves and the table of rounds."""
    board = _Curves(context, watch)
    watch.listeners.append(board.refresh)
    place = card("Rounds", "All rounds with their metrics.")
    with place:
        rows = ui.element("div").classes("c-stack")

    def draw_rounds() -> None:
        rows.clear()
        with rows:
            for why in warnings_of(watch.events):
                note("warning", f"Warning of the last round: {why}.", "warn")
            _rounds(context, watch)

    draw_rounds()
    seen = {"state": _state(watch)}

    def when_changed() -> None:
        if seen["state"] != _state(watch):  # deliveries alone do not redraw the table
            seen["state"] = _state(watch)
            draw_rounds()

    watch.listeners.append(when_changed)


def _state(watch: Watch) -> list[tuple[int, str]]:
    return [(item.number, item.state) for item in watch.in_order()]


class _Curves:
    """Metric curves; new rounds are appended without a redraw."""

    def __init__(self, context: PageContext, watch: Watch) -> None:
        self._context, self._watch = context, watch
        self._charts: dict[str, ui.echart] = {}
        with card("Metrics", "Means over each round's devices, measured on the round's initial model."):
            self._select = ui.select([], multiple=True, label="Show").props("outlined dense use-chips")
            self._select.style("max-width: 100%; min-width: 220px")
            self._place = ui.element("div").classes("c-grid").style("--least: 380px")
        names = metric_names(watch.in_order())
        self._select.set_options(names, value=names[:DEFAULT_CURVES])
        self._select.on_value_change(self._draw)
        self._draw()

    def _draw(self) -> None:
        self._place.clear()
        self._charts.clear()
        rounds = self._watch.in_order()
        with self._place:
            if not self._select.options:
                empty("show_chart", "No metrics yet.", "Curves appear when the first round is done.")
            for name in self._select.value or []:
                with ui.element("div"):
                    self._charts[name] = chart(self._options(rounds, name), f"{name} by round", height=260)

    def _options(self, rounds: list[Round], name: str) -> dict[str, Any]:
        head = headed(name, self._watch.task.better)
        return lines(palette(self._context.dark), curves(rounds, name), across="round", up=head)

    def refresh(self) -> None:
        """Add new rounds to the curves."""
        rounds = self._watch.in_order()
        names = metric_names(rounds)
        if names != self._select.options:
            self._select.set_options(names, value=self._select.value or names[:DEFAULT_CURVES])
            self._draw()
            return
        for name, item in self._charts.items():
            new = self._options(rounds, name)
            if new["series"] != item.options.get("series"):
                item.options.clear()
                item.options.update(new)
                item.update()


def _rounds(context: PageContext, watch: Watch) -> None:
    rounds = list(reversed(watch.in_order()))
    metrics = metric_names(rounds)
    heads = [headed(name, watch.task.better) for name in metrics[:6]]
    columns = [*COLUMNS, *(Column(f"m{number}", head, "number") for number, head in enumerate(heads))]
    table(
        columns,
        [_row(context, item, metrics) for item in rounds],
        key="number",
        label="Rounds",
        nothing=("hourglass_empty", "No rounds yet.", "The first one opens when the task starts."),
        csv_name=f"rounds-{watch.spec.name}.csv",
        per_page=12,
    )


def _row(context: PageContext, round_: Round, metrics: list[str]) -> dict[str, Any]:
    took = round_.done_at - round_.opened_at if round_.done_at else 0.0
    return {
        "number": round_.number,
        **state_cell("state", round_.state),
        "delivered": f"{round_.delivered} / {round_.participants}" if round_.participants else "–",
        "delivered_share": round_.delivered / max(1, round_.participants),
        "delivered_sort": round_.delivered,
        "quorum": round_.quorum,
        "took": words.span(took) if took else "–",
        "took_sort": took,
        "opened": context.moment(round_.opened_at),
        "opened_sort": round_.opened_at,
        "plan": round_.plan_version,
        "attempt": round_.attempt,
    } | {
        key: value
        for number, name in enumerate(metrics[:6])
        for key, value in (
            (f"m{number}", figure_of(round_.metrics, name)),
            (f"m{number}_sort", round_.metrics.get(name, "")),
        )
    }

"""Model versions of a task with downloads, and its settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from coterie.learning.metrics import headed
from coterie.records import Model
from services.console.components.blocks import card, facts, text_element
from services.console.components.contexts import PageContext
from services.console.components.tables import Column, table
from services.console.components.task_watch import Watch
from services.console.domain import words
from services.console.domain.names import Names

COLUMNS = (
    Column("version", "Version", "number"),
    Column("line", "Model", "number"),
    Column("figures", "Metrics", wrap=True),
    Column("own", "Publisher's evaluation", wrap=True),
    Column("made", "Created"),
    Column("size", "Size", "number"),
    Column("digest", "SHA-256"),
    Column("get", "Download", "link"),
)


async def show(context: PageContext, watch: Watch, names: Names) -> None:
    """Draw all versions, the newest first."""
    place = ui.element("div")

    async def draw() -> None:
        models = await context.platform.read_all(Model, f"/v1/tasks/{watch.id}/models")
        place.clear()
        with (
            place,
            card("Versions", "Version 0 is the initial model, version n the result of round n. Files are safetensors."),
        ):
            better = watch.task.better
            rows = [
                _row(context, model, better) for model in sorted(models, key=lambda item: (-item.version, item.line))
            ]
            nothing = ("inventory_2", "No versions yet.", "The first round creates one.")
            table(COLUMNS, rows, key="key", label="Versions", nothing=nothing, csv_name="versions.csv")

    await draw()
    last = {"digests": watch.task.model_digests}

    def when_changed() -> None:
        if last["digests"] != watch.task.model_digests and not place.is_deleted:
            last["digests"] = watch.task.model_digests
            with place:
                ui.timer(0.01, draw, once=True)

    watch.listeners.append(when_changed)


def _figures(metrics: Mapping[str, float], better: Mapping[str, str]) -> str:
    figures = (f"{headed(name, better)} {words.number(value, 3)}" for name, value in metrics.items())
    return ", ".join(figures) or "not measured"


def _row(context: PageContext, model: Model, better: Mapping[str, str]) -> dict[str, Any]:
    return {
        "key": f"{model.line}-{model.version}",
        "version": model.version,
        "line": model.line,
        "figures": _figures(model.metrics, better),
        "own": _figures(model.evaluated, better),
        "made": context.moment(model.created_at),
        "size": words.size(model.size_bytes),
        "size_sort": model.size_bytes,
        "digest": f"{model.digest[:16]}…",
        "digest_sort": model.digest,
        "get": "safetensors",
        "get_href": f"/files/models/{model.digest}",
    }


async def show_settings(context: PageContext, watch: Watch, names: Names) -> None:
    """Draw the specification with all defaults."""
    task, spec = watch.task, watch.spec
    with card("Specification", "With all defaults."):
        facts(
            [
                ("Id", task.id),
                ("Publisher", task.publisher),
                ("Preset", spec.preset or "none"),
                ("Topology", spec.topology),
                ("Privacy", f"{spec.privacy}, protecting {words.UNIT_WORDS.get(spec.privacy_unit, 'nothing')}"),
                ("Incentive", spec.incentive),
                ("Escrow", f"{words.credits(spec.escrow_microcredits)} credits"),
                ("Rounds", f"{spec.rounds}, each open for {words.span(spec.round_seconds)} at most"),
                ("Devices", f"at least {spec.min_devices}, at most {spec.max_devices or 'all'} per round"),
                ("Quorum", f"{words.percent(spec.quorum)} of a round's devices"),
                ("Attempts", f"a round is retried at most {words.count(max(0, spec.max_attempts), 'time')}"),
                ("Starts", "automatically" if spec.auto_start else "manually"),
                ("Seed", str(spec.seed)),
                ("Created", context.moment(task.created_at)),
                ("Started", context.moment(task.started_at)),
                ("Ended", context.moment(task.ended_at)),
            ]
        )
    for title, document in (("Training configuration", spec.training), ("Parameters", spec.parameters)):
        with card(title):
            text_element("pre", json.dumps(document, indent=2, ensure_ascii=False), "c-mono").style(
                "margin: 0; white-space: pre-wrap"
            )

"""A task's model versions with downloads, and what was asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from coterie.learning.metrics import headed
from coterie.records import Model
from services.console.components.blocks import card, facts, say
from services.console.components.contexts import PageContext
from services.console.components.tables import Column, table
from services.console.components.task_watch import Watch
from services.console.domain import words
from services.console.domain.names import Names

COLUMNS = (
    Column("version", "Version", "number"),
    Column("line", "Model", "number"),
    Column("figures", "Its figures", wrap=True),
    Column("own", "Measured by its publisher", wrap=True),
    Column("made", "Made"),
    Column("size", "Size", "number"),
    Column("digest", "SHA-256"),
    Column("get", "Download", "link"),
)


async def show(context: PageContext, watch: Watch, names: Names) -> None:
    """Every version, the newest first."""
    place = ui.element("div")

    async def draw() -> None:
        models = await context.platform.read_all(Model, f"/v1/tasks/{watch.id}/models")
        place.clear()
        with (
            place,
            card(
                "Versions", "Version 0 is the model the task began with, n the one round n made. Files are safetensors."
            ),
        ):
            better = watch.task.better
            rows = [_row(context, each, better) for each in sorted(models, key=lambda item: (-item.version, item.line))]
            nothing = ("inventory_2", "There is no version yet.", "The first is made by the first round.")
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
    told = (f"{headed(name, better)} {words.number(value, 3)}" for name, value in metrics.items())
    return ", ".join(told) or "not measured"


def _row(context: PageContext, each: Model, better: Mapping[str, str]) -> dict[str, Any]:
    return {
        "key": f"{each.line}-{each.version}",
        "version": each.version,
        "line": each.line,
        "figures": _figures(each.metrics, better),
        "own": _figures(each.evaluated, better),
        "made": context.moment(each.created_at),
        "size": words.size(each.size_bytes),
        "size_sort": each.size_bytes,
        "digest": f"{each.digest[:16]}…",
        "digest_sort": each.digest,
        "get": "safetensors",
        "get_href": f"/files/models/{each.digest}",
    }


async def show_settings(context: PageContext, watch: Watch, names: Names) -> None:
    """What was asked for, with every default filled in."""
    task, spec = watch.task, watch.spec
    with card("What was asked for", "With every default filled in."):
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
                ("Attempts", f"a round is opened again {max(0, spec.max_attempts)} times at most"),
                ("Starts", "by itself" if spec.auto_start else "when somebody starts it"),
                ("Seed", str(spec.seed)),
                ("Created", context.moment(task.created_at)),
                ("Started", context.moment(task.started_at)),
                ("Ended", context.moment(task.ended_at)),
            ]
        )
    for title, document in (("Training, as devices are told", spec.training), ("Parameters", spec.parameters)):
        with card(title):
            say("pre", json.dumps(document, indent=2, ensure_ascii=False), "c-mono").style(
                "margin: 0; white-space: pre-wrap"
            )

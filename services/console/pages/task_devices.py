"""Devices of a task: contributions by round, and payments."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from nicegui import ui

from coterie.records import Enrolment, Participation, Plan, Round, RoundDetail, Summary
from coterie.records.enums import Role
from services.console.components.actions import handler
from services.console.components.blocks import card, empty, text
from services.console.components.charts import bars, chart, palette
from services.console.components.contexts import PageContext
from services.console.components.tables import Column, state_cell, table
from services.console.components.task_watch import Watch
from services.console.domain import words
from services.console.domain.names import Names
from services.console.domain.progress import contributions

MOST_BARS = 20
COLUMNS = (
    Column("name", "Device", "link"),
    Column("role", "Role"),
    Column("state", "State", "chip"),
    Column("share", "Share of the result", "bar"),
    Column("weight", "Weight", "number"),
    Column("size", "Sent", "number"),
    Column("at", "Delivered"),
    Column("figures", "Metrics", wrap=True),
    Column("note", "Remark", wrap=True),
)
JOINED = (
    Column("name", "Device", "link"),
    Column("state", "State", "chip"),
    Column("samples", "Samples", "number"),
    Column("paid", "Paid, credits", "number"),
    Column("joined", "Joined"),
)


async def show(context: PageContext, watch: Watch, names: Names) -> None:
    """Draw the contributions of a chosen round, and all joined devices."""
    rounds = sorted(watch.rounds, reverse=True)
    with card("Contributions", "Weight of each device's update in a round."):
        if not rounds:
            empty("groups", "No contributions yet.", "Contributions appear when the first round opens.")
        else:
            select = ui.select(rounds, value=rounds[0], label="Round").props("outlined dense").style("width: 140px")
            place = ui.element("div").classes("c-stack")

            async def draw() -> None:
                number = int(select.value or 0)
                result = await context.platform.read(RoundDetail, f"/v1/tasks/{watch.id}/rounds/{number}")
                heads = await _heads(context, watch, result.round)
                place.clear()
                with place:
                    _round(context, names, result.participations, number, heads)

            await draw()
            select.on_value_change(handler(context, draw))
            watch.listeners.append(lambda: select.set_options(sorted(watch.rounds, reverse=True), value=select.value))
    await _joined(context, watch, names)


async def _heads(context: PageContext, watch: Watch, round_: Round) -> dict[str, str]:
    """Return the head of each member; empty without clusters."""
    if watch.spec.topology != "clusters":
        return {}
    plan = await context.platform.read(Plan, f"/v1/tasks/{watch.id}/plan", version=round_.plan_version)
    return {
        assignment.device_id: assignment.head_device_id
        for assignment in plan.assignments
        if assignment.role is Role.MEMBER
    }


def _round(
    context: PageContext, names: Names, participations: Sequence[Participation], number: int, heads: dict[str, str]
) -> None:
    shares = contributions(participations, heads)
    if shares:
        top = shares[:MOST_BARS]
        options = bars(
            palette(context.dark),
            [names.device(device) for device, _ in top],
            [round(100 * share, 2) for _, share in top],
            unit="share of the round's weight, %",
        )
        chart(options, f"Shares of round {number}'s weight by device", height=70 + 24 * len(top))
        if len(shares) > MOST_BARS:
            text(f"The {MOST_BARS} largest of {len(shares)}; the table has all.", "c-faint c-small")
    share_of = dict(shares)
    table(
        COLUMNS,
        [_row(context, names, participation, share_of) for participation in participations],
        key="device",
        label=f"Contributions of round {number}",
        nothing=("groups", "No participants.", "No device took part in this round."),
        search=len(participations) > 12,
        csv_name=f"round-{number}.csv",
    )


def _row(
    context: PageContext, names: Names, participation: Participation, share_of: dict[str, float]
) -> dict[str, Any]:
    share = share_of.get(participation.device_id, 0.0)
    figures = ", ".join(f"{name} {words.number(value, 3)}" for name, value in sorted(participation.metrics.items()))
    return {
        "device": participation.device_id,
        "name": names.device(participation.device_id),
        "name_href": f"/trust?device={participation.device_id}",
        "role": participation.role,
        **state_cell("state", participation.state),
        "share": words.percent(share, 1),
        "share_share": share,
        "share_sort": share,
        "weight": words.number(participation.weight),
        "weight_sort": participation.weight,
        "size": words.size(participation.payload_bytes) if participation.payload_bytes else "–",
        "size_sort": participation.payload_bytes,
        "at": context.moment(participation.delivered_at),
        "figures": figures or "–",
        "note": participation.note
        or (f"excluded by the rule: {participation.excluded_because}" if participation.excluded_because else ""),
    }


async def _joined(context: PageContext, watch: Watch, names: Names) -> None:
    enrolments, summary = await asyncio.gather(
        context.platform.read_all(Enrolment, f"/v1/tasks/{watch.id}/enrolments"),
        context.platform.read(Summary, "/v1/payments/summary", task=watch.id),
    )
    paid = {earner.device_id: earner.paid_microcredits for earner in summary.earners}
    rows = [
        {
            "device": enrolment.device_id,
            "name": names.device(enrolment.device_id),
            "name_href": f"/trust?device={enrolment.device_id}",
            **state_cell("state", enrolment.state),
            "samples": f"{enrolment.samples:,}",
            "samples_sort": enrolment.samples,
            "paid": words.credits(paid.get(enrolment.device_id, 0)),
            "paid_sort": paid.get(enrolment.device_id, 0) / words.MICRO,
            "joined": context.moment(enrolment.enrolled_at),
        }
        for enrolment in enrolments
    ]
    with card("Joined devices", "Each device reports its number of samples."):
        table(
            JOINED,
            rows,
            key="device",
            label="Devices that joined",
            nothing=("group_add", "No device has joined.", "Devices join with `coterie device run --task NAME`."),
            search=len(rows) > 12,
            csv_name="enrolments.csv",
        )

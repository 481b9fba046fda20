"""Audit log, newest first."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from services.console.components.actions import handler
from services.console.components.blocks import button, card, heading, note, text
from services.console.components.contexts import PageContext
from services.console.components.frame import ADMINS, Pages
from services.console.components.tables import Column, table
from services.console.domain.names import Names
from services.console.wire.platform import Json

PAGE_ROWS = 200
COLUMNS = (
    Column("number", "No.", "number"),
    Column("at", "When"),
    Column("who", "Who"),
    Column("act", "Action"),
    Column("object", "Object", wrap=True),
    Column("note", "Remark", wrap=True),
    Column("request", "Request"),
)
NOTHING = ("fact_check", "No entry matches.", "Clear a filter to see more.")


def add(pages: Pages) -> None:
    pages.add("/audit", "Audit", ADMINS, show)


async def show(context: PageContext) -> None:
    with heading("Audit", "All recorded actions, newest first, including reads of trust."):
        pass
    _verification(context)
    names = await context.app.directory.names(context.platform, fresh_seconds=60.0)
    entries: list[Json] = []
    state = {"cursor": ""}
    with card(label="Audit log"):
        with ui.element("div").classes("c-row"):
            who = ui.input("Who (id)").props("outlined dense clearable debounce=300").style("width: 260px")
            act = ui.input("Action, such as device.revoke").props("outlined dense clearable debounce=300")
            act.style("width: 240px")
        place = ui.element("div").classes("c-stack")
        more = ui.element("div").classes("c-row")

    async def read(*, from_start: bool) -> None:
        if from_start:
            entries.clear()
            state["cursor"] = ""
        page, state["cursor"] = await context.platform.page(
            "/v1/audit",
            limit=PAGE_ROWS,
            subject=str(who.value or "").strip(),
            act=str(act.value or "").strip(),
            cursor=state["cursor"],
        )
        entries.extend(page)
        place.clear()
        with place:
            rows = [_row(context, names, item) for item in entries]
            table(COLUMNS, rows, key="number", label="Audit log", nothing=NOTHING, search=True, csv_name="audit.csv")
        more.clear()
        with more:
            text(f"{len(entries):,} entries loaded", "c-faint c-small")
            if state["cursor"]:
                button("Load earlier entries", "expand_more", handler(context, lambda: read(from_start=False)))

    await read(from_start=True)
    for control in (who, act):
        control.on_value_change(handler(context, lambda: read(from_start=True)))


def _verification(context: PageContext) -> None:
    """Verify the hash chain after the page is drawn."""
    place = ui.element("div").classes("c-stack")

    async def verify() -> None:
        place.clear()
        with place:
            text("Verifying the hash chain …", "c-faint")
        result = await context.platform.verify_audit()
        place.clear()
        with place:
            _verdict(result)

    ui.timer(0.1, handler(context, verify), once=True)


def _verdict(verification: Json) -> None:
    if verification["sound"]:
        note("verified", f"Verified: the hash chain of all {verification['entries']:,} entries is intact.", "good")
        return
    note("error", "Verification failed: the audit log was changed. Compare it with a backup.", "bad")
    for fault in verification["faults"]:
        note("report", fault, "bad")


def _row(context: PageContext, names: Names, entry: Json) -> dict[str, Any]:
    return {
        "number": entry["number"],
        "at": context.moment(entry["at"]),
        "at_sort": entry["at"],
        "who": f"{entry['role']} {names.device(entry['subject'])}" if entry["subject"] else entry["role"],
        "act": entry["act"],
        "object": _object(names, entry["object"]),
        "note": entry["note"],
        "request": entry["request_id"],
    }


def _object(names: Names, what: str) -> str:
    """Replace ids by names where they are known."""
    parts = what.split(",")
    return ", ".join(names.owner(names.device(part)) for part in parts)

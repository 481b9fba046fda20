"""Audit: who did what, newest first."""

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
    Column("act", "Did"),
    Column("object", "To what", wrap=True),
    Column("note", "Remark", wrap=True),
    Column("request", "Request"),
)
NOTHING = ("fact_check", "Nothing fits.", "Clear a filter to see more.")


def add(pages: Pages) -> None:
    """Registers the page."""
    pages.add("/audit", "Audit", ADMINS, show)


async def show(context: PageContext) -> None:
    """Draws the page."""
    with heading("Audit", "Who did what, newest first. Reading trust is written down too."):
        pass
    _verification(context)
    names = await context.app.directory.names(context.platform, fresh_seconds=60.0)
    found: list[Json] = []
    state = {"cursor": ""}
    with card(label="Audit log"):
        with ui.element("div").classes("c-row"):
            who = ui.input("Who (id)").props("outlined dense clearable debounce=300").style("width: 260px")
            act = ui.input("Did, such as device.revoke").props("outlined dense clearable debounce=300")
            act.style("width: 240px")
        place = ui.element("div").classes("c-stack")
        more = ui.element("div").classes("c-row")

    async def read(*, again: bool) -> None:
        if again:
            found.clear()
            state["cursor"] = ""
        page, state["cursor"] = await context.platform.page(
            "/v1/audit",
            limit=PAGE_ROWS,
            subject=str(who.value or "").strip(),
            act=str(act.value or "").strip(),
            cursor=state["cursor"],
        )
        found.extend(page)
        place.clear()
        with place:
            rows = [_row(context, names, item) for item in found]
            table(COLUMNS, rows, key="number", label="Audit log", nothing=NOTHING, search=True, csv_name="audit.csv")
        more.clear()
        with more:
            text(f"{len(found):,} entries read", "c-faint c-small")
            if state["cursor"]:
                button("Read earlier ones", "expand_more", handler(context, lambda: read(again=False)))

    await read(again=True)
    for control in (who, act):
        control.on_value_change(handler(context, lambda: read(again=True)))


def _verification(context: PageContext) -> None:
    """Whether the chain is whole: looked at when the page is drawn, without keeping it waiting."""
    place = ui.element("div").classes("c-stack")

    async def verify() -> None:
        place.clear()
        with place:
            text("Following the chain of hashes …", "c-faint")
        result = await context.platform.verify_audit()
        place.clear()
        with place:
            _verdict(result)

    ui.timer(0.1, handler(context, verify), once=True)


def _verdict(found: Json) -> None:
    if found["sound"]:
        note("verified", f"Verified: {found['entries']:,} entries, each of which seals the one before.", "good")
        return
    note("error", "The audit log is not sound: somebody changed it. Compare it with a back-up.", "bad")
    for fault in found["faults"]:
        note("report", fault, "bad")


def _row(context: PageContext, names: Names, each: Json) -> dict[str, Any]:
    return {
        "number": each["number"],
        "at": context.moment(each["at"]),
        "at_sort": each["at"],
        "who": f"{each['role']} {names.device(each['subject'])}" if each["subject"] else each["role"],
        "act": each["act"],
        "object": _object(names, each["object"]),
        "note": each["note"],
        "request": each["request_id"],
    }


def _object(names: Names, what: str) -> str:
    """Ids that have a name, by name."""
    parts = what.split(",")
    return ", ".join(names.owner(names.device(part)) for part in parts)

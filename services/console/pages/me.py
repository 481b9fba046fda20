"""The owner's page, made for a phone: what my device gave away, to whom, what it earned, who asks for it; and deciding.

Decisions are signed in the browser by the key its owner linked on the device; the console passes them on. Whoever signs
in with a device's own key looks, and decides nothing here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from coterie.errors import NotAllowed
from services.console.components.blocks import (
    card,
    chip,
    empty,
    facts,
    grid,
    heading,
    link_button,
    note,
    say,
    text,
    tile,
)
from services.console.components.contexts import DEVICE, PageContext
from services.console.components.frame import Pages
from services.console.components.tables import Column, table
from services.console.domain import words
from services.console.pages import me_leaving, me_tasks
from services.console.wire.platform import Json

OWNERS = frozenset({DEVICE})
MOST_TASKS = 40
MOST_PAYMENTS = 200
PAYMENTS = (
    Column("at", "When"),
    Column("task", "Task"),
    Column("amount", "Credits", "number"),
    Column("because", "Why", wrap=True),
)


def add(pages: Pages) -> None:
    """Registers the page."""
    pages.add("/me", "My device", OWNERS, show)


@dataclass(frozen=True, slots=True)
class Mine:
    """What the page shows."""

    device: Json
    owner: Json
    devices: list[Json]
    """All devices of the owner."""
    links: list[Json]
    account: int
    payments: list[Json]
    privacy: Json
    joined: list[tuple[Json, list[Json]]]
    """Tasks the device took part in, with its rounds."""

    def link(self, context: PageContext) -> Json | None:
        """The link of the browser that looks; None for a device's own key."""
        return next((item for item in self.links if item["id"] == context.person.link_id), None)


async def show(context: PageContext) -> None:
    """Draws the page."""
    own = await read(context)
    link = own.link(context)
    ui.add_head_html('<script src="/static/owner.js"></script>')
    with heading(own.device["name"], f"{own.owner['name']}’s device"):
        chip(own.device["state"])
    if link is None:
        note(
            "link",
            "You are signed in with the device's own key: you may look here. To decide here too, run "
            "`coterie device link --home FOLDER` on the device, and open the address it shows in this browser.",
        )
    _figures(context, own, link)
    names = {device["id"]: device["name"] for device in own.devices}
    await me_tasks.asking(context, {task["id"] for task, _ in own.joined}, names)
    _privacy(own)
    me_tasks.seen(context, own.joined)
    _earnings(context, own)
    _devices(context, own)
    me_leaving.circle(own.device, link)
    me_leaving.identity(own.device, own.owner)
    me_leaving.leaving(context, own.device, own.links)


async def read(context: PageContext) -> Mine:
    """Asks for everything at once; all of it is what the device's own key may see."""
    platform, device_id = context.platform, context.person.subject
    (device, owner, links, privacy), (devices, tasks, payments), account = await asyncio.gather(
        asyncio.gather(
            platform.get(f"/v1/devices/{device_id}"),
            platform.get(f"/v1/owners/{context.person.owner_id}"),
            platform.get(f"/v1/devices/{device_id}/links"),
            platform.get(f"/v1/privacy/{device_id}"),
        ),
        asyncio.gather(
            platform.page("/v1/devices", limit=100),
            platform.page("/v1/tasks", limit=MOST_TASKS),
            platform.page("/v1/payments", device=device_id, limit=MOST_PAYMENTS),
        ),
        _balance(context, device_id),
    )
    parts = await asyncio.gather(*(_part(context, task["id"], device_id) for task in tasks[0]))
    joined = [(task, part) for task, part in zip(tasks[0], parts, strict=True) if part]
    taken = [link for link in links["items"] if link["claimed_at"]]
    return Mine(device, owner, devices[0], taken, account, payments[0], privacy, joined)


async def _part(context: PageContext, task_id: str, device_id: str) -> list[Any]:
    """The device's part in a task's rounds; a task it has not joined shows it none."""
    try:
        result = await context.platform.page(f"/v1/tasks/{task_id}/devices/{device_id}/rounds", limit=500)
    except NotAllowed:
        return []
    return result[0]


async def _balance(context: PageContext, device_id: str) -> int:
    """What the account holds; a device that was never paid has none yet."""
    result = await context.platform.find(f"/v1/accounts/device:{device_id}")
    return int(result["balance_microcredits"]) if result else 0


def _figures(context: PageContext, mine: Mine, link: Json | None) -> None:
    with grid(150, even=True):
        tile("Earned", words.credits(mine.account, places=2), "credits")
        given = f"at δ = {words.number(mine.privacy['delta'])}"
        tile("ε given away", words.number(mine.privacy["epsilon"], 3), given)
        if link is not None:
            with ui.element("div").classes("c-tile"):
                say("span", "ε left", "l")
                say("span", "…", "v").props("data-note=left")
                say("span", "as the device says", "n").props("data-note=limit")
        tile("Tasks joined", str(len(mine.joined)))
        tile("Last heard of", context.ago(mine.device["last_seen_at"]))


def _privacy(mine: Mine) -> None:
    with card("What it gave away"):
        if not mine.privacy["tasks"]:
            empty("shield", "Nothing noised was released.", "Each task the device works for is listed here with its ε.")
        else:
            said = words.strength(mine.privacy["epsilon"])
            note("shield", f"Over all tasks: {said}.")
        names = {task["id"]: task["specification"]["name"] for task, _ in mine.joined}
        facts(
            (names.get(item["task_id"], words.short(item["task_id"])), _spent(item)) for item in mine.privacy["tasks"]
        )
        text("", "c-small").props("data-note=raw")
        text(
            "This is what the device reported to the platform. Its own ledger also lists what it sent without noise to "
            "devices you trust, and keeps your limit: `coterie privacy show` on the device.",
            "c-faint c-small",
        )


def _spent(each: Json) -> str:
    unit = words.UNIT_WORDS.get(each["unit"], each["unit"])
    return f"ε = {words.epsilon(each['epsilon'])} in {words.count(each['rounds'], 'round')}, hiding {unit}"


def _earnings(context: PageContext, mine: Mine) -> None:
    names = {task["id"]: task["specification"]["name"] for task, _ in mine.joined}
    with card("Earnings"):
        rows = [_payment(context, names, payment) for payment in mine.payments]
        nothing = ("payments", "Nothing was earned yet.", "Tasks that pay say so before you join.")
        table(PAYMENTS, rows, key="number", label="Earnings", nothing=nothing, per_page=8)
        if rows:
            link_button("Statement as CSV", "download", f"/files/statements/device:{mine.device['id']}")


def _payment(context: PageContext, names: dict[str, str], each: Json) -> dict[str, Any]:
    return {
        "number": each["number"],
        "at": context.moment(each["at"]),
        "at_sort": each["at"],
        "task": names.get(each["task_id"], words.short(each["task_id"])),
        "amount": words.credits(each["amount_microcredits"]),
        "amount_sort": each["amount_microcredits"] / words.MICRO,
        "because": each["because"].replace("µcr", "micro-credits"),
    }


def _devices(context: PageContext, mine: Mine) -> None:
    """The owner's devices; each is decided for in a browser linked on it."""
    if len(mine.devices) < 2:
        return
    with card("My devices", "A link is good for the device it was made on: link this browser on each you decide for."):
        for device in mine.devices:
            with ui.element("div").classes("c-row"):
                text(device["name"], "c-any" + (" c-strong" if device["id"] == mine.device["id"] else ""))
                chip(device["state"])
                text(f"last heard of {context.ago(device['last_seen_at'])}", "c-faint c-small")

"""The owner's page, designed for phones: what my device shared, with whom, what it earned, and decisions about tasks.

The browser signs decisions with the key that the owner linked on the device; the console forwards them. A sign-in with
the device's own key can read, but not decide.
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
    text,
    text_element,
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
    pages.add("/me", "My device", OWNERS, show)


@dataclass(frozen=True, slots=True)
class OwnerData:
    """Data of the page."""

    device: Json
    owner: Json
    devices: list[Json]
    """All devices of the owner."""
    links: list[Json]
    account: int
    payments: list[Json]
    privacy: Json
    joined: list[tuple[Json, list[Json]]]
    """Tasks in which the device took part, with its rounds."""

    def link(self, context: PageContext) -> Json | None:
        """Return the link of this browser; None for a device's own key."""
        return next((item for item in self.links if item["id"] == context.person.link_id), None)


async def show(context: PageContext) -> None:
    own = await read(context)
    link = own.link(context)
    ui.add_head_html('<script src="/static/owner.js"></script>')
    with heading(own.device["name"], f"{own.owner['name']}’s device"):
        chip(own.device["state"])
    if link is None:
        note(
            "link",
            "You signed in with the device's own key, which only lets you read. To decide here too, run "
            "`coterie device link --home FOLDER` on the device and open the address it shows in this browser.",
        )
    _figures(context, own, link)
    names = {device["id"]: device["name"] for device in own.devices}
    await me_tasks.draw_requests(context, {task["id"] for task, _ in own.joined}, names)
    _privacy(own)
    me_tasks.draw_visibility(context, own.joined)
    _earnings(context, own)
    _devices(context, own)
    me_leaving.draw_circle(own.device, link)
    me_leaving.draw_identity(own.device, own.owner)
    me_leaving.draw_leaving(context, own.device, own.links)


async def read(context: PageContext) -> OwnerData:
    """Read all data of the page concurrently."""
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
    return OwnerData(
        device=device,
        owner=owner,
        devices=devices[0],
        links=taken,
        account=account,
        payments=payments[0],
        privacy=privacy,
        joined=joined,
    )


async def _part(context: PageContext, task_id: str, device_id: str) -> list[Any]:
    """Return the device's participation in a task's rounds; empty for a task it has not joined."""
    try:
        result = await context.platform.page(f"/v1/tasks/{task_id}/devices/{device_id}/rounds", limit=500)
    except NotAllowed:
        return []
    return result[0]


async def _balance(context: PageContext, device_id: str) -> int:
    """Return the account's balance; 0 for a device that was never paid."""
    result = await context.platform.find(f"/v1/accounts/device:{device_id}")
    return int(result["balance_microcredits"]) if result else 0


def _figures(context: PageContext, own: OwnerData, link: Json | None) -> None:
    with grid(150, even=True):
        tile("Earned", words.credits(own.account, places=2), "credits")
        given = f"at δ = {words.number(own.privacy['delta'])}"
        tile("ε spent", words.number(own.privacy["epsilon"], 3), given)
        if link is not None:
            with ui.element("div").classes("c-tile"):
                text_element("span", "ε left", "l")
                text_element("span", "…", "v").props("data-note=left")
                text_element("span", "reported by the device", "n").props("data-note=limit")
        tile("Tasks joined", str(len(own.joined)))
        tile("Last seen", context.ago(own.device["last_seen_at"]))


def _privacy(own: OwnerData) -> None:
    with card("What it shared"):
        if not own.privacy["tasks"]:
            empty("shield", "No release yet.", "This list shows each task of the device with its ε.")
        else:
            strength = words.strength(own.privacy["epsilon"])
            note("shield", f"Over all tasks: {strength}.")
        names = {task["id"]: task["specification"]["name"] for task, _ in own.joined}
        facts((names.get(item["task_id"], words.short(item["task_id"])), _spent(item)) for item in own.privacy["tasks"])
        text("", "c-small").props("data-note=raw")
        text(
            "The device reported these figures. Its own ledger also lists what it sent without noise to "
            "devices you trust, and your limit: run `coterie privacy show` on the device.",
            "c-faint c-small",
        )


def _spent(charge: Json) -> str:
    unit = words.UNIT_WORDS.get(charge["unit"], charge["unit"])
    return f"ε = {words.epsilon(charge['epsilon'])} in {words.count(charge['rounds'], 'round')}, protecting {unit}"


def _earnings(context: PageContext, own: OwnerData) -> None:
    names = {task["id"]: task["specification"]["name"] for task, _ in own.joined}
    with card("Earnings"):
        rows = [_payment(context, names, payment) for payment in own.payments]
        nothing = ("payments", "No earnings yet.", "Each task shows before you join what it pays.")
        table(PAYMENTS, rows, key="number", label="Earnings", nothing=nothing, per_page=8)
        if rows:
            link_button("Statement as CSV", "download", f"/files/statements/device:{own.device['id']}")


def _payment(context: PageContext, names: dict[str, str], payment: Json) -> dict[str, Any]:
    return {
        "number": payment["number"],
        "at": context.moment(payment["at"]),
        "at_sort": payment["at"],
        "task": names.get(payment["task_id"], words.short(payment["task_id"])),
        "amount": words.credits(payment["amount_microcredits"]),
        "amount_sort": payment["amount_microcredits"] / words.MICRO,
        "because": payment["because"].replace("µcr", "micro-credits"),
    }


def _devices(context: PageContext, own: OwnerData) -> None:
    """Draw the owner's devices; each needs its own link for decisions."""
    if len(own.devices) < 2:
        return
    with card("My devices", "A link covers one device. Link this browser on each device for which you decide."):
        for device in own.devices:
            with ui.element("div").classes("c-row"):
                text(device["name"], "c-any" + (" c-strong" if device["id"] == own.device["id"] else ""))
                chip(device["state"])
                text(f"last seen {context.ago(device['last_seen_at'])}", "c-faint c-small")

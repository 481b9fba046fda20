"""The owner's page, made for a phone: what my device gave away, to whom, what it earned, and who asks for it."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import Any

import segno
from nicegui import ui

from coterie.errors import NotAllowed
from coterie.sums.circle import fingerprint_words, invitation
from services.console.domain import words
from services.console.domain.consequences import consequences
from services.console.domain.hiding import promise, who_sees
from services.console.parts.acting import doing
from services.console.parts.blocks import button, card, chip, empty, facts, grid, heading, link_button, note, text, tile
from services.console.parts.frame import Pages
from services.console.parts.tables import Column, table
from services.console.parts.visit import DEVICE, Visit
from services.console.wire.platform import Json

OWNERS = frozenset({DEVICE})
MOST_TASKS = 40
MOST_PAYMENTS = 200
SHARING = {
    "own": "the two devices of a tie alone",
    "owners": "both owners' devices",
    "all": "everybody on the platform",
}
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
    """Everything the page shows."""

    device: Json
    owner: Json
    account: int
    payments: list[Json]
    privacy: Json
    joined: list[tuple[Json, list[Json]]]
    """Tasks the device took part in, with its rounds."""
    asking: list[Json]
    """Tasks that take devices and in which it has no part."""


async def show(visit: Visit) -> None:
    """Draws the page."""
    mine = await read(visit)
    with heading(mine.device["name"], f"{mine.owner['name']}’s device"):
        chip(mine.device["state"])
    with grid(150, even=True):
        tile("Earned", words.credits(mine.account, places=2), "credits")
        tile("ε given away", words.number(mine.privacy["epsilon"], 3), f"at δ = {words.number(mine.privacy['delta'])}")
        tile("Tasks joined", str(len(mine.joined)))
        tile("Last heard of", visit.ago(mine.device["last_seen_at"]))
    _privacy(mine)
    _asking(mine)
    _joined(visit, mine)
    _earnings(visit, mine)
    _circle(mine)
    _revoke(visit, mine)


async def read(visit: Visit) -> Mine:
    """Asks for everything at once; all of it is what the device's own key may see."""
    platform, device_id = visit.platform, visit.person.subject
    device, owner, privacy, tasks, payments, account = await asyncio.gather(
        platform.get(f"/v1/devices/{device_id}"),
        platform.get(f"/v1/owners/{visit.person.owner_id}"),
        platform.get(f"/v1/privacy/{device_id}"),
        platform.page("/v1/tasks", limit=MOST_TASKS),
        platform.page("/v1/payments", device=device_id, limit=MOST_PAYMENTS),
        _balance(visit, device_id),
    )
    parts = await asyncio.gather(*(_part(visit, task["id"], device_id) for task in tasks[0]))
    joined = [(task, part) for task, part in zip(tasks[0], parts, strict=True) if part]
    known = {task["id"] for task, _ in joined}
    asking = [each for each in tasks[0] if each["state"] in ("created", "running") and each["id"] not in known]
    return Mine(device, owner, account, payments[0], privacy, joined, asking)


async def _part(visit: Visit, task_id: str, device_id: str) -> list[Any]:
    """The device's part in a task's rounds; a task it has not joined shows it none."""
    try:
        found = await visit.platform.page(f"/v1/tasks/{task_id}/devices/{device_id}/rounds", limit=500)
    except NotAllowed:
        return []
    return found[0]


async def _balance(visit: Visit, device_id: str) -> int:
    """What the account holds; a device that was never paid has none yet."""
    found = await visit.platform.find(f"/v1/accounts/device:{device_id}")
    return int(found["balance_microcredits"]) if found else 0


def _privacy(mine: Mine) -> None:
    with card("What it gave away"):
        if not mine.privacy["tasks"]:
            empty("shield", "Nothing noised was released.", "Each task the device works for is listed here with its ε.")
        else:
            said = words.strength(mine.privacy["epsilon"])
            note("shield", f"Over all tasks: {said}.")
        names = {task["id"]: task["specification"]["name"] for task, _ in mine.joined}
        facts(
            (names.get(each["task_id"], words.short(each["task_id"])), _spent(each)) for each in mine.privacy["tasks"]
        )
        text(
            "This is what the device reported to the platform. Its own ledger also lists what it sent without noise to "
            "devices you trust, and keeps your limit: `coterie privacy show` on the device.",
            "c-faint c-small",
        )


def _spent(each: Json) -> str:
    unit = words.UNIT_WORDS.get(each["unit"], each["unit"])
    return f"ε = {words.epsilon(each['epsilon'])} in {words.count(each['rounds'], 'round')}, hiding {unit}"


def _asking(mine: Mine) -> None:
    with card("Tasks that ask for devices", "Your device joins only when it is told to, on the device itself."):
        if not mine.asking:
            empty("inbox", "Nobody asks at the moment.", "New tasks appear here with what they would learn and pay.")
        for task in mine.asking:
            spec = task["specification"]
            with ui.expansion(spec["name"], caption=spec["description"] or "no description").classes("c-ask"):
                facts(
                    [
                        ("Way of learning", spec["preset"] or f"{spec['topology']}, {spec['privacy']}"),
                        *who_sees(spec),
                        *((what, said) for what, said in consequences(_asked(spec)) if what != "Cost"),
                        ("Pays", _pay(spec)),
                    ]
                )
                text(promise(spec), "c-small")
                text(f"To join: coterie device run --home FOLDER --task {spec['name']}", "c-mono")


def _asked(spec: Json) -> Json:
    return {key: value for key, value in spec.items() if value not in ("", None)}


def _pay(spec: Json) -> str:
    escrow = int(spec["escrow_microcredits"])
    if spec["incentive"] == "none" or not escrow:
        return "nothing"
    return f"from an escrow of {words.credits(escrow)} credits, shared by all devices"


def _joined(visit: Visit, mine: Mine) -> None:
    with card("Who could see what it sent"):
        if not mine.joined:
            empty("visibility", "It has sent nothing yet.", "Join a task on the device to take part.")
        for task, rounds in mine.joined:
            spec = task["specification"]
            delivered = sum(1 for each in rounds if each["state"] == "delivered")
            with ui.expansion(spec["name"], caption=f"{delivered} of {words.count(len(rounds), 'round')} delivered"):
                with ui.element("div").classes("c-row"):
                    chip(task["state"])
                    text(f"last {visit.ago(max(each['delivered_at'] for each in rounds))}", "c-faint c-small")
                facts(who_sees(spec))


def _earnings(visit: Visit, mine: Mine) -> None:
    names = {task["id"]: task["specification"]["name"] for task, _ in mine.joined}
    with card("Earnings"):
        rows = [_payment(visit, names, each) for each in mine.payments]
        nothing = ("payments", "Nothing was earned yet.", "Tasks that pay say so before you join.")
        table(PAYMENTS, rows, key="number", label="Earnings", nothing=nothing, per_page=8)
        if rows:
            link_button("Statement as CSV", "download", f"/files/statements/device:{mine.device['id']}")


def _payment(visit: Visit, names: dict[str, str], each: Json) -> dict[str, Any]:
    return {
        "number": each["number"],
        "at": visit.moment(each["at"]),
        "at_sort": each["at"],
        "task": names.get(each["task_id"], words.short(each["task_id"])),
        "amount": words.credits(each["amount_microcredits"]),
        "amount_sort": each["amount_microcredits"] / words.MICRO,
        "because": each["because"].replace("µcr", "micro-credits"),
    }


def _circle(mine: Mine) -> None:
    """What other owners compare before they take the device into their circle."""
    key = base64.b64decode(mine.device["signing_key"])
    with card("Fingerprint", "What another owner compares before their devices tell this one anything without noise."):
        text(fingerprint_words(key), "c-strong c-mono")
        _code(invitation(mine.device["id"], key, mine.device["owner_id"]))
        text(
            "This is the key as the platform tells it. `coterie circle show` on the device tells the true one: if its "
            "words differ from these, somebody is posing as your device. Others who scan this code believe the "
            "platform; to believe you alone, let them scan it from the device (`--qr`).",
            "c-faint c-small",
        )
    _names(mine)


def _code(content: str) -> None:
    """A QR code, drawn here: nothing is asked of another host."""
    image = ui.element("img").classes("c-code").style("width: 200px; max-width: 100%; background: white; padding: 8px")
    image.props["src"] = segno.make(content, error="m").svg_data_uri(scale=4, border=2)
    image.props["alt"] = "The device's invitation into a circle, as a QR code"


def _names(mine: Mine) -> None:
    sharing = str(mine.owner["sharing"])
    with card("Who I am here"):
        facts(
            [
                ("Owner", mine.owner["name"]),
                ("Ties are shown to", SHARING.get(sharing, sharing)),
                ("Key for signing", mine.device["signing_key"]),
                ("Key for letters", mine.device["sealing_key"]),
                ("Keys changed", f"{mine.device['key_version'] - 1} times"),
            ]
        )


def _revoke(visit: Visit, mine: Mine) -> None:
    with card("Pause"):
        text("On the device: coterie device pause --home FOLDER. It declines all work until coterie device resume.")
    with card("Leave"):
        text(
            "Revoking ends the device's part in everything, at once and for good: its key stops and it is given "
            "no more work. The book keeps what it was paid; what models have learnt from it stays in them."
        )
        button("Revoke this device", "block", doing(visit, lambda: _confirm(visit, mine)), "c-danger")


def _confirm(visit: Visit, mine: Mine) -> None:
    with ui.dialog(value=True) as dialog, ui.card():
        text(f"Revoke “{mine.device['name']}” for good?", "c-strong")
        text("This cannot be undone. To take part again, the device must register anew.")

        async def revoke() -> None:
            body = {"why": "revoked by its owner on the owner's page"}
            await visit.platform.ask("POST", f"/v1/devices/{mine.device['id']}/revocation", json=body)
            dialog.close()
            ui.navigate.to("/me")

        with ui.element("div").classes("c-row"):
            button("Revoke it", "block", doing(visit, revoke), "c-danger")
            button("Keep it", "undo", dialog.close)

"""Owner's page: circle, identity, linked browsers, revoking and deleting the device."""

from __future__ import annotations

import base64

import segno
from nicegui import ui

from coterie.secure_sums.circle import fingerprint_words, invitation
from services.console.components.actions import handler
from services.console.components.blocks import button, card, facts, text, text_element
from services.console.components.contexts import PageContext
from services.console.components.frame import leave as send_away
from services.console.wire.platform import Json

SHARING = {
    "own": "only the two devices of a tie",
    "owners": "the devices of both owners",
    "all": "all devices on the platform",
}
STAYS = (
    "The book keeps payments and the audit log keeps actions, both under the device's id only. What models have learnt "
    "from the device stays in them and cannot be removed."
)


def draw_circle(device: Json, link: Json | None) -> None:
    """Draw the fingerprint that other owners compare, and the device's own circle."""
    key = base64.b64decode(device["signing_key"])
    with card("Fingerprint", "Another owner compares this before their devices send to this one without noise."):
        text(fingerprint_words(key), "c-strong c-mono")
        _code(invitation(device["id"], key, device["owner_id"]))
        text(
            "The platform supplied this key. Compare it with `coterie circle show` on the device: if the words differ, "
            "another key poses as your device. Owners who scan this code trust the platform; to avoid that, let them "
            "scan it from the device (`--qr`).",
            "c-faint c-small",
        )
    if link is None:
        return
    with card("My circle", "Devices whose keys you compared. Only they receive anything without noise."):
        text_element("ul", "", "c-people").props("data-note=circle")
        text("", "c-faint").props("data-note=alone")
        text("…", "c-faint c-small").props("data-note=state")


def _code(content: str) -> None:
    """Draw a QR code locally, without another host."""
    image = ui.element("img").classes("c-code")
    image.props["src"] = segno.make(content, error="m").svg_data_uri(scale=4, border=2)
    image.props["alt"] = "The device's invitation into a circle, as a QR code"


def draw_identity(device: Json, owner: Json) -> None:
    """Draw names and keys as the platform knows them."""
    sharing = str(owner["sharing"])
    with card("Identity"):
        facts(
            [
                ("Owner", owner["name"]),
                ("Ties are visible to", SHARING.get(sharing, sharing)),
                ("Signing key", device["signing_key"]),
                ("Encryption key", device["sealing_key"]),
                ("Keys changed", f"{device['key_version'] - 1} times"),
            ]
        )


def draw_leaving(context: PageContext, device: Json, links: list[Json]) -> None:
    """Draw linked browsers, revoking and deleting."""
    if links:
        with card(
            "Linked browsers", "Each can decide for this device. To unlink on the device: coterie device unlink."
        ):
            for link in links:
                _link(context, device, link)
    if not context.person.link_id:
        with card("Pause"):
            text("On the device: coterie device pause --home FOLDER. It declines all work until coterie device resume.")
    with card("Leave"):
        text(
            "Revoking ends the device's participation at once and permanently: its key stops working and it gets no "
            "more work. Its name and its ties stay."
        )
        button(
            "Revoke this device", "block", handler(context, lambda: _confirm(context, device, erase=False)), "c-danger"
        )
        text(
            "Deleting also removes its name, profile, keys, ties and messages, and your name with your last device. "
            f"{STAYS}"
        )
        button(
            "Delete this device", "delete", handler(context, lambda: _confirm(context, device, erase=True)), "c-danger"
        )


def _link(context: PageContext, device: Json, link: Json) -> None:
    async def end() -> None:
        await context.platform.ask("DELETE", f"/v1/devices/{device['id']}/links/{link['id']}")
        ui.navigate.to("/me")

    with ui.element("div").classes("c-row"):
        here = " (this one)" if link["id"] == context.person.link_id else ""
        text(f"{link['name'] or 'a browser'}{here}", "c-any")
        text(f"since {context.moment(link['claimed_at'])}", "c-faint c-small")
        button("Unlink", "link_off", handler(context, end))


def _confirm(context: PageContext, device: Json, *, erase: bool) -> None:
    title, consequence = (
        (f"Delete “{device['name']}” permanently?", STAYS)
        if erase
        else (f"Revoke “{device['name']}” permanently?", "To take part again, the device must register again.")
    )

    async def go() -> None:
        path = f"/v1/devices/{device['id']}"
        if erase:
            await context.platform.ask("DELETE", path)
        else:
            body = {"why": "revoked by its owner on the owner's page"}
            await context.platform.ask("POST", f"{path}/revocation", json=body)
        dialog.close()
        why = "Your device is deleted." if erase else "Your device is revoked."
        context.app.sessions.end(context.session, why)
        send_away(why)

    with ui.dialog(value=True) as dialog, ui.card():
        text(title, "c-strong")
        text(f"This cannot be undone. {consequence}")
        with ui.element("div").classes("c-row"):
            label, icon = ("Delete it", "delete") if erase else ("Revoke it", "block")
            button(label, icon, handler(context, go), "c-danger")
            button("Keep it", "undo", dialog.close)

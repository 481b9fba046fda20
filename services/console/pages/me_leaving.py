"""On the owner's page: whom the device knows, by whom it is known, and taking leave of it all."""

from __future__ import annotations

import base64

import segno
from nicegui import ui

from coterie.secure_sums.circle import fingerprint_words, invitation
from services.console.components.actions import handler
from services.console.components.blocks import button, card, facts, say, text
from services.console.components.contexts import PageContext
from services.console.components.frame import leave as send_away
from services.console.wire.platform import Json

SHARING = {
    "own": "the two devices of a tie alone",
    "owners": "both owners' devices",
    "all": "everybody on the platform",
}
STAYS = (
    "The book keeps what was paid and the audit log what was done, under the device's bare id. What models have learnt "
    "from the device stays in them: nobody can take it out again."
)


def circle(device: Json, link: Json | None) -> None:
    """What other owners compare before they take the device into their circle, and who is in this one."""
    key = base64.b64decode(device["signing_key"])
    with card("Fingerprint", "What another owner compares before their devices tell this one anything without noise."):
        text(fingerprint_words(key), "c-strong c-mono")
        _code(invitation(device["id"], key, device["owner_id"]))
        text(
            "This is the key as the platform tells it. `coterie circle show` on the device tells the true one: if its "
            "words differ from these, somebody is posing as your device. Others who scan this code believe the "
            "platform; to believe you alone, let them scan it from the device (`--qr`).",
            "c-faint c-small",
        )
    if link is None:
        return
    with card("My circle", "Whose keys you compared: what has no noise goes to these devices and to nobody else."):
        say("ul", "", "c-people").props("data-note=circle")
        text("", "c-faint").props("data-note=alone")
        text("…", "c-faint c-small").props("data-note=state")


def _code(content: str) -> None:
    """A QR code, drawn here: nothing is asked of another host."""
    image = ui.element("img").classes("c-code")
    image.props["src"] = segno.make(content, error="m").svg_data_uri(scale=4, border=2)
    image.props["alt"] = "The device's invitation into a circle, as a QR code"


def identity(device: Json, owner: Json) -> None:
    """Names and keys, as the platform knows them."""
    sharing = str(owner["sharing"])
    with card("Who I am here"):
        facts(
            [
                ("Owner", owner["name"]),
                ("Ties are shown to", SHARING.get(sharing, sharing)),
                ("Key for signing", device["signing_key"]),
                ("Key for letters", device["sealing_key"]),
                ("Keys changed", f"{device['key_version'] - 1} times"),
            ]
        )


def leaving(context: PageContext, device: Json, links: list[Json]) -> None:
    """PairingApi browsers, revoking and deleting."""
    if links:
        with card("PairingApi browsers", "Each may decide for this device. On the device: coterie device unlink."):
            for link in links:
                _link(context, device, link)
    if not context.person.link_id:
        with card("Pause"):
            text("On the device: coterie device pause --home FOLDER. It declines all work until coterie device resume.")
    with card("Leave"):
        text(
            "Revoking ends the device's part in everything, at once and for good: its key stops and it is given no "
            "more work. Its name and its ties stay."
        )
        button(
            "Revoke this device", "block", handler(context, lambda: _confirm(context, device, erase=False)), "c-danger"
        )
        text(
            "Deleting revokes it too, and its name, profile, keys, ties and letters go; with your last device your own "
            f"name. {STAYS}"
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
    title, told = (
        (f"Delete “{device['name']}” for good?", STAYS)
        if erase
        else (f"Revoke “{device['name']}” for good?", "To take part again, the device must register anew.")
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
        text(f"This cannot be undone. {told}")
        with ui.element("div").classes("c-row"):
            label, icon = ("Delete it", "delete") if erase else ("Revoke it", "block")
            button(label, icon, handler(context, go), "c-danger")
            button("Keep it", "undo", dialog.close)

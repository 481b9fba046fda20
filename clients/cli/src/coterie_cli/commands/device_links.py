"""`coterie device link`, `links` and `unlink`: browsers that may decide for a device."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from coterie.agent.home import DeviceHome, DeviceIdentity
from coterie.agent.owner_decisions import Owner
from coterie.agent.pairing import BadLink, LinkSecret
from coterie.client import Platform
from coterie.errors import NotFound
from coterie.records import BrowserLink
from coterie_cli.commands.circle import qr_code
from coterie_cli.console import AsJson, Mistake, err, show, table, when

Home = Annotated[Path, typer.Option(help="Folder of a registered device.")]
LINK_EPILOG = """[bold]Examples[/]

coterie device link --home phone   [dim]open the address in your browser within ten minutes[/]\n
coterie device link --home phone --console https://coterie.example --qr   [dim]for a phone[/]

The address is a key: the first browser that opens it decides for this device. It works once, while this command waits.
"""
LINKS_EPILOG = "[bold]Example[/]  coterie device links --home phone"
UNLINK_EPILOG = "[bold]Example[/]  coterie device unlink lnk_01jd… --home phone"
ASK_SECONDS = 1.0


def link(
    home: Home,
    console: Annotated[
        str, typer.Option(envvar="COTERIE_CONSOLE_URL", help="URL of the web console.")
    ] = "http://127.0.0.1:8090",
    minutes: Annotated[float, typer.Option(min=0.05, max=1440, help="Minutes for which the link works.")] = 10.0,
    qr: Annotated[bool, typer.Option("--qr", help="Draw the address as a QR code.")] = False,
    as_json: AsJson = False,
) -> None:
    """Link your browser, so that it may approve tasks for this device and pause it."""
    identity, secret = _identity(home), LinkSecret.fresh()
    with Platform(identity.url, identity.api_key) as platform:
        made = platform.make_link(identity.id, token_digest=secret.token_digest, lifetime_seconds=60.0 * minutes)
        address = secret.address(console, made.id)
        err.print(Text(f"Open this in your browser within {minutes:g} minutes, and keep it secret:\n\n{address}\n"))
        if qr:
            err.print(Text(qr_code(address)))
        try:
            browser = secret.pinned(_taken(platform, made))
        except BaseException as error:  # also Ctrl-C: the platform must not keep a link that is not pinned here
            platform.end_link(identity.id, made.id)
            if isinstance(error, BadLink):
                raise Mistake(str(error)) from error
            raise
        DeviceHome(home).save_browser(browser)
        Owner(platform, DeviceHome(home), identity.id).tell(now=True)
    document = {"link": browser.link, "name": browser.name, "device": identity.id}
    show(document, as_json, lambda: f"linked with {browser.name or 'a browser'} ({browser.link})")


def links(home: Home, as_json: AsJson = False) -> None:
    """List the browsers that may decide for a device."""
    _identity(home)
    result = list(DeviceHome(home).browsers().values())
    document = [{"link": item.link, "name": item.name, "linked_at": item.linked_at} for item in result]
    rows = [[item.link, item.name, when(item.linked_at)] for item in result]
    title = "" if rows else "no browser is linked; `coterie device link` makes one"
    show(document, as_json, lambda: table(title, ["link", "browser", "since"], rows))


def unlink(
    link: Annotated[str, typer.Argument(help="The link's id (`coterie device links`).")],
    home: Home,
    as_json: AsJson = False,
) -> None:
    """Unlink a browser and sign it out."""
    identity = _identity(home)
    if not DeviceHome(home).forget_browser(link):
        raise Mistake(f"no browser is linked as {link}; `coterie device links --home {home}` lists them")
    with Platform(identity.url, identity.api_key) as platform:
        platform.end_link(identity.id, link)
    show({"link": link}, as_json, lambda: f"{link} is unlinked")


def _taken(platform: Platform, made: BrowserLink) -> BrowserLink:
    """Wait until a browser claims the link; raise when it expires."""
    deadline = time.monotonic() + max(0.0, made.expires_at - made.created_at)
    while True:
        result = next((item for item in platform.links(made.device_id) if item.id == made.id), None)
        if result is None:
            raise NotFound("the link was ended; make a new one", status=404)
        if result.claimed_at:
            return result
        if time.monotonic() > deadline:
            raise Mistake("no browser opened the link in time; run the command again")
        time.sleep(ASK_SECONDS)


def _identity(home: Path) -> DeviceIdentity:
    identity = DeviceHome(home).identity()
    if identity is None:
        raise Mistake(f"{home} holds no registered device; run `coterie device register --home {home}` first")
    return identity

"""`coterie circle`: devices that an owner has verified by key, independently of the platform."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Annotated, Any

import segno
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from coterie.agent.home import DeviceHome, DeviceIdentity
from coterie.client import Platform
from coterie.records import KnownKeys
from coterie.secure_sums.circle import BadCircle, Circle, Member, fingerprint_words, read_invitation
from coterie_cli.console import AsJson, Mistake, err, show, table

app = typer.Typer(
    help="Verified devices; only they receive updates without noise and shares of secure sums.",
    no_args_is_help=True,
)
Home = Annotated[Path, typer.Option(help="Folder of a registered device.")]
_SHOW_EPILOG = """[bold]Examples[/]

coterie circle show --home phone        [dim]members, and the invitation for other owners[/]\n
coterie circle show --home phone --qr   [dim]also the invitation as a QR code[/]
"""
_ADD_EPILOG = """[bold]Examples[/]

coterie circle add 'coterie:circle?{"device":"dev_01jd0d…","owner":"own_01jd0c…","signing_key":"9f…"}' --home phone\n
coterie circle add dev_01jd0d… --words 'babad gutih tugad hodog …' --home phone

Take the invitation or the words from the other owner (see `coterie circle show` there), not from the platform.
"""
_VERIFY_EPILOG = """[bold]Example[/]

coterie circle verify dev_01jd0d… --home phone   [dim]compare the eight words with its owner by telephone[/]
"""
_SET_EPILOG = """[bold]Examples[/]

coterie circle set --home phone --company-least 3   [dim]require three circle members in every sum[/]\n
coterie circle set --home phone --secure-only       [dim]join only tasks with secure sums[/]\n
coterie circle set --home phone --no-clerk          [dim]join sums, but never as a clerk[/]
"""


@app.command("show", epilog=_SHOW_EPILOG)
def show_circle(
    home: Home,
    qr: Annotated[bool, typer.Option("--qr", help="Draw this device's invitation as a QR code.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the members of the circle, and this device's fingerprint and invitation."""
    identity, circle = _identity(home), DeviceHome(home).circle()
    key = DeviceHome(home).keys().public().signing
    own = {"device": identity.id, "owner": identity.owner_id, "words": fingerprint_words(key)}
    invited = DeviceHome(home).invitation()
    document = {
        **_settings(circle),
        "this_device": {**own, "signing_key": key.hex(), "invitation": invited},
        "members": _people(circle.members, verified=True),
        "seen": _people(circle.seen, verified=False),
    }
    show(document, as_json, lambda: _shown(document, invited, qr))


@app.command("verify", epilog=_VERIFY_EPILOG)
def verify(
    device: Annotated[str, typer.Argument(help="The other device's id.")],
    home: Home,
    yes: Annotated[bool, typer.Option("--yes", help="The words were compared; do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch a device's key from the platform, compare its fingerprint with its owner, and add it to the circle."""
    result = _platform_keys(home, device)
    words, known = fingerprint_words(result.signing_key), DeviceHome(home).circle().members.get(device)
    if known is not None and known.signing_key != result.signing_key:
        raise Mistake(
            f"the platform says that {device} has ANOTHER KEY ({words}) than the one in this circle "
            f"({fingerprint_words(known.signing_key)}): another device may impersonate it; ask its owner. If the "
            f"key is new: coterie circle remove {device} --home {home}, then verify it again"
        )
    if known is None:
        err.print(f"{device}, as the platform says:\n\n  [bold]{words}[/]\n")
        if not yes and not typer.confirm("Does its owner read the same words from `coterie circle show`?", err=True):
            raise Mistake(f"{device} was not added; if the words differ, another device impersonates it")
        _save(home, _with(DeviceHome(home).circle(), device, Member(result.signing_key, result.owner_id)))
    _print_member(
        device, result.signing_key, as_json, "has the key it has in this circle" if known else "is in the circle"
    )


@app.command("add", epilog=_ADD_EPILOG)
def add(
    invited: Annotated[str, typer.Argument(help="Invitation from its owner, or the device's id with --words.")],
    home: Home,
    words: Annotated[str, typer.Option(help="Its fingerprint, as its owner reads it out.")] = "",
    as_json: AsJson = False,
) -> None:
    """Add a device to the circle, by an invitation or by the words that its owner reads out."""
    try:
        # A narrow terminal wraps an invitation; it contains no spaces itself.
        device, member = _by_words(home, invited, words) if words else read_invitation("".join(invited.split()))
    except BadCircle as error:
        raise Mistake(f"{error}, or give the device's id and --words") from error
    if device == _identity(home).id:
        raise Mistake("this is the device's own invitation; send it to the other owner, and add theirs here")
    _save(home, _with(DeviceHome(home).circle(), device, member))
    _print_member(device, member.signing_key, as_json, "is in the circle")


@app.command("remove", epilog="[bold]Example[/]  coterie circle remove dev_01jd0d… --home phone")
def remove(
    device: Annotated[str, typer.Argument(help="The other device's id.")], home: Home, as_json: AsJson = False
) -> None:
    """Remove a device from the circle: from the next round on it receives only noised updates."""
    _identity(home)
    try:
        _save(home, DeviceHome(home).circle().without(device))
    except BadCircle as error:
        raise Mistake(f"{error}; `coterie circle show --home {home}` lists who is") from error
    show({"device": device, "removed": True}, as_json, lambda: f"{device} is removed from the circle")


@app.command("set", epilog=_SET_EPILOG)
def set_circle(
    home: Home,
    mode: Annotated[str, typer.Option(help="pinned: members only; first-use: keep a clerk's first key.")] = "",
    strangers: Annotated[int, typer.Option(help="Most clerks outside the circle; -1 = keep.")] = -1,
    smallest_sum: Annotated[int, typer.Option(help="Fewest devices in a sum; -1 = keep.")] = -1,
    company_least: Annotated[int, typer.Option(help="Fewest circle members in a sum; -1 = keep.")] = -1,
    count: Annotated[
        str, typer.Option(help="assume: the task's honest devices add noise; company: members only.")
    ] = "",
    secure_only: Annotated[
        bool | None, typer.Option("--secure-only/--clear-too", help="Whether tasks with clear sums are declined.")
    ] = None,
    clerk: Annotated[
        bool | None,
        typer.Option("--clerk/--no-clerk", help="Whether this device serves as a clerk of other devices' sums."),
    ] = None,
    names_clerks: Annotated[
        bool | None,
        typer.Option(
            "--name-clerks/--keep-clerks", help="Whether tasks learn which circle members it accepts as clerks."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change the owner's requirements for secure sums; restart the device to apply them to its tasks."""
    _identity(home)
    settings: dict[str, Any] = {"mode": mode or None, "count": count or None, "secure_only": secure_only}
    settings |= {"clerk": clerk, "names_clerks": names_clerks}
    numbers = {"strangers": strangers, "smallest_sum": smallest_sum, "company_least": company_least}
    settings |= {name: value for name, value in numbers.items() if value != -1}
    changes = {name: value for name, value in settings.items() if value is not None}
    try:
        circle = dataclasses.replace(DeviceHome(home).circle(), **changes)
    except BadCircle as error:
        raise Mistake(str(error)) from error
    _save(home, circle)
    rows = [[name, value] for name, value in _settings(circle).items()]
    show(_settings(circle), as_json, lambda: table("", ["setting", "value"], rows))


def _identity(home: Path) -> DeviceIdentity:
    identity = DeviceHome(home).identity()
    if identity is None:
        raise Mistake(f"{home} holds no registered device; run `coterie device register --home {home}` first")
    return identity


def _platform_keys(home: Path, device: str) -> KnownKeys:
    """Fetch a device's keys from the platform; unverified until the owner compares the fingerprint."""
    identity = _identity(home)
    with Platform(identity.url, identity.api_key) as platform:
        return platform.keys_of(device)


def _by_words(home: Path, device: str, words: str) -> tuple[str, Member]:
    result = _platform_keys(home, device)
    if fingerprint_words(result.signing_key).split() != words.lower().split():
        raise Mistake(
            f"the platform's key of {device} has another fingerprint ({fingerprint_words(result.signing_key)}); "
            "compare the words again, or ask its owner for the invitation: another device may impersonate it"
        )
    return device, Member(result.signing_key, result.owner_id)


def _with(circle: Circle, device: str, member: Member) -> Circle:
    try:
        return circle.with_member(device, member.signing_key, member.owner)
    except BadCircle as error:
        raise Mistake(f"{error}: coterie circle remove {device}") from error


def _save(home: Path, circle: Circle) -> None:
    DeviceHome(home).save_circle(circle)


def _print_member(device: str, key: bytes, as_json: bool, what: str) -> None:
    document = {"device": device, "signing_key": key.hex(), "words": fingerprint_words(key), "in_circle": True}
    show(document, as_json, lambda: f"{device} {what}: {fingerprint_words(key)}")


def _settings(circle: Circle) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(circle) if field.name not in ("members", "seen")]
    return {name: getattr(circle, name) for name in names}


def _people(people: Any, *, verified: bool) -> list[dict[str, Any]]:
    return [
        {
            "device": device,
            "owner": member.owner,
            "words": fingerprint_words(member.signing_key),
            "signing_key": member.signing_key.hex(),
            "verified": verified,
        }
        for device, member in sorted(people.items())
    ]


def _shown(document: dict[str, Any], invited: str, qr: bool) -> RenderableType:
    own, listed = document["this_device"], [*document["members"], *document["seen"]]
    people = [[item["device"], item["owner"], "yes" if item["verified"] else "no", item["words"]] for item in listed]
    title = f"in the circle ({len(document['members'])} compared)" if people else "the circle is empty"
    settings = [[name, document[name]] for name in ("mode", "strangers", "smallest_sum", "company_least")]
    settings += [[name, document[name]] for name in ("count", "secure_only", "clerk", "names_clerks")]
    parts: list[RenderableType] = [
        Text(f"this device, {own['device']}; read these words to other owners:\n\n  {own['words']}\n"),
        Text(f"its invitation; send it to them:\n\n{invited}\n", overflow="fold"),
        *([Text(qr_code(invited))] if qr else []),
        table(title, ["device", "owner", "compared", "fingerprint"], people),
        Text(""),
        table("requirements for secure sums", ["setting", "value"], settings),
    ]
    return Group(*parts)


def qr_code(text: str) -> str:
    """Draw a QR code with half blocks, two rows per terminal line."""
    drawn = io.StringIO()
    segno.make(text, error="m", micro=False).terminal(out=drawn, compact=True)
    return drawn.getvalue()

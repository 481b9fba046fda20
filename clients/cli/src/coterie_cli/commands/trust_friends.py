"""`coterie trust befriend`, `unfriend` and `friends`: friendships that both owners declare."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie.client import Platform
from coterie.errors import NotAllowed
from coterie.records import Relation
from coterie_cli.console import AsJson, Key, Mistake, Url, connect, show, table, when

OwnerA = Annotated[str, typer.Argument(metavar="OWNER", help="Your owner (own_…); admins may give its name.")]
OwnerB = Annotated[str, typer.Argument(metavar="OTHER", help="The other owner.")]
BEFRIEND_EPILOG = (
    "[bold]Example[/]  coterie trust befriend own_01jd… own_01je… --strength 0.8\n\n"
    "With a device's key, name that device's owner first; the other owner runs the command with the names swapped."
)
UNFRIEND_EPILOG = "[bold]Example[/]  coterie trust unfriend own_01jd… own_01je…"
FRIENDS_EPILOG = "[bold]Example[/]  coterie trust friends own_01jd…"


def befriend(
    owner: OwnerA,
    other: OwnerB,
    strength: Annotated[float, typer.Option(min=0.01, max=1.0, help="How close they are.")] = 1.0,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Declare friendship with another owner, or confirm theirs; it takes effect when both have declared it."""
    _declare(owner, other, strength=strength, url=url, key=key, as_json=as_json)


def unfriend(owner: OwnerA, other: OwnerB, url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """Withdraw a friendship; both owners must declare it again to restore it."""
    _declare(owner, other, strength=0.0, url=url, key=key, as_json=as_json)


def friends(owner: OwnerA, url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """List an owner's friendships, unconfirmed ones included."""
    with connect(url, key) as platform:
        (owner_id,) = _ids(platform, owner)
        result = list(platform.friendships(owner_id))
    rows = [[one.b, f"{one.strength:.2f}", "yes" if one.confirmed else one.because, when(one.since)] for one in result]
    columns = ["other owner", "strength", "holds", "since"]
    show([one.to_dict() for one in result], as_json, lambda: table(f"friendships of {owner}", columns, rows))


def _declare(owner: str, other: str, strength: float, url: str, key: str, as_json: bool) -> None:
    with connect(url, key) as platform:
        first, second = _ids(platform, owner, other)
        declared = platform.declare_friendship(first, second, strength)
    show(declared, as_json, lambda: _summary(declared))


def _summary(declared: Relation) -> str:
    if declared.confirmed:
        return f"{declared.a} and {declared.b} are friends, with strength {declared.strength:g}."
    if not declared.strength:
        return f"The friendship of {declared.a} and {declared.b} is withdrawn."
    return f"Declared. It takes effect when the other owner runs: coterie trust befriend {declared.b} {declared.a}"


def _ids(platform: Platform, *owners: str) -> list[str]:
    names = {text for text in owners if not text.startswith("own_")}
    if not names:
        return list(owners)
    try:
        known = {owner.name: owner.id for owner in platform.owners() if owner.name in names}
    except NotAllowed as error:
        raise Mistake("only admins look owners up by name; give ids (own_…)") from error
    unknown = names - known.keys()
    if unknown:
        raise Mistake(f"no owner is called {min(unknown)!r}; `coterie owners list` shows those there are")
    return [known.get(text, text) for text in owners]

"""`coterie owners`: owners of devices and their enrolment tokens."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie.client import Platform
from coterie_cli.console import AsJson, Key, Mistake, Url, connect, show, table, when

app = typer.Typer(help="Owners of devices and their enrolment tokens.", no_args_is_help=True)


@app.command("create", epilog="[bold]Example[/]  coterie owners create Ada --sharing owners")
def create(
    name: str,
    sharing: Annotated[str, typer.Option(help="Who may see the ties of its devices: own, owners or all.")] = "own",
    public: Annotated[
        bool, typer.Option("--public", help="A public body such as a municipality, with public vehicles.")
    ] = False,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Create an owner, or return the existing owner of this name."""
    if sharing not in ("own", "owners", "all"):
        raise Mistake(f"--sharing must be own, owners or all, not {sharing!r}")
    with connect(url, key) as platform:
        owner = platform.create_owner(name, sharing=sharing, public=public)
    show(owner, as_json, lambda: f"owner [bold]{owner.id}[/] ({owner.name})")


@app.command("list", epilog="[bold]Example[/]  coterie owners list --json | jq '.[].name'")
def list_owners(url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """List owners."""
    with connect(url, key) as platform:
        owners = list(platform.owners())
    rows = [[owner.id, owner.name, owner.sharing, when(owner.created_at)] for owner in owners]
    show(owners, as_json, lambda: table("", ["id", "name", "sharing", "since"], rows))


@app.command("token", epilog="[bold]Example[/]  coterie owners token Ada --uses 3")
def token(
    owner: Annotated[str, typer.Argument(help="Owner's id or name; a new name creates the owner.")],
    uses: Annotated[int, typer.Option(min=1, help="Number of devices that may register with it.")] = 1,
    hours: Annotated[float, typer.Option(min=0.01, help="Hours for which it works.")] = 24.0,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Issue an enrolment token; it is shown only once."""
    with connect(url, key) as platform:
        issued = platform.issue_token(_owner_id(platform, owner), uses=uses, lifetime_seconds=hours * 3600)
    show(issued, as_json, lambda: f"[bold]{issued.token}[/]  good for {uses} until {when(issued.expires_at)}")


def _owner_id(platform: Platform, owner: str) -> str:
    return owner if owner.startswith("own_") else platform.create_owner(owner).id

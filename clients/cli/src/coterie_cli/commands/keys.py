"""`coterie keys`: API keys of admins and publishers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from coterie.records import ApiKey, KeyInfo
from coterie_cli.commands.payments import moment
from coterie_cli.console import AsJson, Key, Mistake, Url, connect, show, table, when

app = typer.Typer(help="API keys of admins and publishers.", no_args_is_help=True)
Until = Annotated[str, typer.Option(help="When the key expires, such as 2027-01-31; by default never.")]
Save = Annotated[Path | None, typer.Option(help="Write the key to this file instead of showing it.")]


@app.command(
    "create",
    epilog="[bold]Examples[/]  coterie keys create publisher hospital\n\n"
    "coterie keys create publisher trial --until 2027-01-31 --save trial.key",
)
def create(
    role: str,
    name: str,
    until: Until = "",
    save: Save = None,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Create an API key for an admin or a publisher; it is shown only once."""
    if role not in ("admin", "publisher"):
        raise Mistake(f"the role must be admin or publisher, not {role!r}; devices get their key when they register")
    with connect(url, key) as platform:
        made = platform.create_key(role, name, expires_at=moment("--until", until))
    _print_key(made, save, as_json)


@app.command("list", epilog="[bold]Example[/]  coterie keys list")
def list_keys(url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """List keys with their ids, expired and revoked ones included; secrets are never shown again."""
    with connect(url, key) as platform:
        result = list(platform.keys())
    rows = [[k.id, f"{k.principal.subject}\n{k.principal.role} {k.principal.name}", _state(k)] for k in result]
    show(result, as_json, lambda: table("", ["id", "holder", "state"], rows))


@app.command(
    "rotate",
    epilog="[bold]Examples[/]  coterie keys rotate\n\ncoterie keys rotate key_01jd0e… --hours 1 --save hospital.key",
)
def rotate(
    key_id: Annotated[str, typer.Argument(help="Id of the old key; by default the key this command uses.")] = "",
    hours: Annotated[float, typer.Option(min=0, max=720, help="Hours for which the old key still works.")] = 24.0,
    until: Until = "",
    save: Save = None,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Replace an API key; both work until the old one expires."""
    with connect(url, key) as platform:
        old = key_id or platform.me().key_id
        made = platform.rotate_key(old, grace_seconds=hours * 3600, expires_at=moment("--until", until))
    _print_key(made, save, as_json)


@app.command("revoke", epilog="[bold]Example[/]  coterie keys revoke key_01jd0e…")
def revoke(key_id: str, url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """Revoke an API key immediately."""
    with connect(url, key) as platform:
        platform.revoke_key(key_id)
    show({"revoked": key_id}, as_json, lambda: f"{key_id} is revoked")


def _print_key(made: ApiKey, save: Path | None, as_json: bool) -> None:
    holder = f"{made.principal.role} {made.principal.subject}"
    if save is None:
        show(made, as_json, lambda: f"[bold]{made.api_key}[/]  ({holder}, {made.id})")
        return
    _write(save, made.api_key)
    document = {"id": made.id, "principal": made.principal, "file": str(save)}
    show(document, as_json, lambda: f"{save} holds the key {made.id} of {holder}")


def _write(path: Path, secret: str) -> None:
    """Write the key atomically to a file that only this user can read."""
    staging = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret + "\n")
    staging.replace(path)


def _state(key: KeyInfo) -> str:
    if key.revoked_at:
        return f"revoked {when(key.revoked_at)[:10]}"
    if not key.expires_at:
        return "works"
    ended = key.expires_at <= time.time()
    return f"{'ended' if ended else 'works until'} {when(key.expires_at)[:16]}"

"""`coterie keys`: API keys of admins and publishers."""

from __future__ import annotations

import typer

from coterie_cli.console import AsJson, Key, Mistake, Url, connect, show

app = typer.Typer(help="API keys of admins and publishers.", no_args_is_help=True)


@app.command("create", epilog="[bold]Example[/]  coterie keys create publisher hospital")
def create(role: str, name: str, url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """Create an API key for an admin or a publisher; it is shown this once."""
    if role not in ("admin", "publisher"):
        raise Mistake(f"the role must be admin or publisher, not {role!r}; devices get their key when they register")
    with connect(url, key) as platform:
        made = platform.create_key(role, name)
    show(made, as_json, lambda: f"[bold]{made.api_key}[/]  ({role} {made.principal.subject})")


@app.command("revoke", epilog="[bold]Example[/]  coterie keys revoke key_01jd0e…")
def revoke(key_id: str, url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """Revoke an API key at once."""
    with connect(url, key) as platform:
        platform.revoke_key(key_id)
    show({"revoked": key_id}, as_json, lambda: f"{key_id} is revoked")

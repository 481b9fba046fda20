"""`coterie up`: the whole platform on this machine, in the foreground."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from coterie.errors import CoterieError
from coterie_cli.console import DEFAULT_DATA, AsJson, err, out, show
from coterie_cli.processes import CONSOLE, CONSOLE_PORT, DEFAULT_PORTS, SERVICES, PlatformProcesses, free_ports

EPILOG = """[bold]Examples[/]

coterie up\n
coterie up --data /srv/coterie --port 9000\n
coterie up --any-ports\n
coterie up --console-port 0
"""
_WATCH_SECONDS = 0.5


def up(
    data: Annotated[Path, typer.Option(help="Folder of databases, models, logs and the admin key.")] = DEFAULT_DATA,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the REST API.")] = DEFAULT_PORTS["gateway"],
    console_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the web console; 0 = without it.")
    ] = CONSOLE_PORT,
    any_ports: Annotated[bool, typer.Option("--any-ports", help="Use free ports, whichever they are.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start the platform here, embedded, until Ctrl-C.

    Settings given as COTERIE_… variables reach every service.
    """
    platform = PlatformProcesses(data, _ports(port, console_port, any_ports))
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with err.status("starting trust, topology, pricing, aggregation, the gateway and the console …"):
            platform.start()
        (data / "url").write_text(platform.url + "\n")
        document = {
            "url": platform.url,
            "docs": f"{platform.url}/docs",
            "console": platform.console_url,
            "admin_key_file": str(platform.admin_key_file),
        }
        show(document, as_json, lambda: _welcome(platform))
        out.file.flush()
        _watch(platform)
    finally:
        with err.status("stopping …"):
            platform.stop()
        (data / "url").unlink(missing_ok=True)


def _ports(port: int, console_port: int, any_ports: bool) -> dict[str, int]:
    names = (*SERVICES, CONSOLE) if console_port else SERVICES
    if any_ports:
        return dict(zip(names, free_ports(len(names)), strict=True))
    return DEFAULT_PORTS | {"gateway": port} | ({CONSOLE: console_port} if console_port else {})


def _welcome(platform: PlatformProcesses) -> str:
    console = f"console: [bold]{platform.console_url}[/] (sign in with the admin key)\n" if platform.console_url else ""
    return (
        f"[bold green]Coterie is up[/] at [bold]{platform.url}[/]  (interactive docs: {platform.url}/docs)\n"
        f"{console}admin key: {platform.admin_key_file}    logs: {platform.data / 'logs'}\n"
        "Ctrl-C stops it."
    )


def _watch(platform: PlatformProcesses) -> None:
    while True:
        gone = platform.ended()
        if gone is not None:
            raise CoterieError(f"{gone} ended by itself; see {platform.data / 'logs' / f'{gone}.log'}")
        time.sleep(_WATCH_SECONDS)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt

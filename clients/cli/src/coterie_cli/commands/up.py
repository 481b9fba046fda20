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
from coterie_cli.processes import DEFAULT_PORTS, SERVICES, PlatformProcesses, free_ports

EPILOG = """[bold]Examples[/]

coterie up\n
coterie up --data /srv/coterie --port 9000\n
coterie up --any-ports
"""
_WATCH_SECONDS = 0.5


def up(
    data: Annotated[Path, typer.Option(help="Folder of databases, models, logs and the admin key.")] = DEFAULT_DATA,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the REST API.")] = DEFAULT_PORTS["gateway"],
    any_ports: Annotated[bool, typer.Option("--any-ports", help="Use free ports, whichever they are.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start the platform here, embedded, until Ctrl-C.

    Settings given as COTERIE_… variables reach every service.
    """
    platform = PlatformProcesses(data, _ports(port, any_ports))
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with err.status("starting trust, topology, pricing, aggregation and the gateway …"):
            platform.start()
        (data / "url").write_text(platform.url + "\n")
        document = {"url": platform.url, "docs": f"{platform.url}/docs", "admin_key_file": str(platform.admin_key_file)}
        show(document, as_json, lambda: _welcome(platform))
        out.file.flush()
        _watch(platform)
    finally:
        with err.status("stopping …"):
            platform.stop()
        (data / "url").unlink(missing_ok=True)


def _ports(port: int, any_ports: bool) -> dict[str, int]:
    if any_ports:
        return dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
    return DEFAULT_PORTS | {"gateway": port}


def _welcome(platform: PlatformProcesses) -> str:
    return (
        f"[bold green]Coterie is up[/] at [bold]{platform.url}[/]  (interactive docs: {platform.url}/docs)\n"
        f"admin key: {platform.admin_key_file}    logs: {platform.data / 'logs'}\n"
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

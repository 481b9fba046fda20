"""`coterie up`: run the platform on this machine in the foreground."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from coterie.errors import CoterieError
from coterie_cli.console import DEFAULT_DATA, AsJson, err, out, show
from coterie_cli.processes import (
    CONSOLE,
    CONSOLE_PORT,
    DEFAULT_PORTS,
    GATEWAY,
    PlatformProcesses,
    busy_port,
    compile_planners,
    free_ports,
    planners_are_compiled,
)

EPILOG = """[bold]Examples[/]

coterie up\n
coterie up --data /srv/coterie --port 9000    [dim]beside another platform[/]\n
coterie up --any-ports\n
coterie up --console-port 0\n
coterie up --stations 3    [dim]one process per base station[/]
"""
_WATCH_SECONDS = 0.5
_MOST_ENDS, _SPAN_SECONDS = 3, 60.0
"""Restart a service at most three times in 60 seconds."""


def up(
    data: Annotated[Path, typer.Option(help="Folder of databases, models, logs and the admin key.")] = DEFAULT_DATA,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the REST API.")] = DEFAULT_PORTS["gateway"],
    console_port: Annotated[
        int, typer.Option(min=-1, max=65535, help="Port of the web console; 0 = none, -1 = 8090 or a free one.")
    ] = -1,
    any_ports: Annotated[bool, typer.Option("--any-ports", help="Use any free ports.")] = False,
    stations: Annotated[
        int, typer.Option(min=0, max=1000, help="Number of base stations of multi-task learning, a process each.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Run the platform on this machine until Ctrl-C.

    Every service receives the COTERIE_… variables of this command.
    """
    platform = PlatformProcesses(data, _ports(port, console_port, any_ports), stations=stations)
    signal.signal(signal.SIGTERM, _interrupt)
    compiling: subprocess.Popen[bytes] | None = None
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
        compiling = _compile()
        _watch(platform)
    finally:
        if compiling is not None:
            compiling.terminate()
            compiling.wait()
        with err.status("stopping …"):
            platform.stop()
        (data / "url").unlink(missing_ok=True)


def _compile() -> subprocess.Popen[bytes] | None:
    """Compile the planners in the background on the first start on a machine."""
    if planners_are_compiled():
        return None
    err.print("compiling the planners of clusters and meshes once in the background; the first plan may take a minute")
    return compile_planners(quiet=True)


def _ports(port: int, console_port: int, any_ports: bool) -> dict[str, int]:
    names = (GATEWAY, CONSOLE) if console_port else (GATEWAY,)
    if console_port < 0:
        console_port = CONSOLE_PORT if busy_port({CONSOLE: CONSOLE_PORT}) is None else free_ports(1)[0]
    if any_ports:
        return dict(zip(names, free_ports(len(names)), strict=True))
    return dict(zip(names, (port, console_port), strict=False))


def _welcome(platform: PlatformProcesses) -> str:
    console = f"console: [bold]{platform.console_url}[/] (sign in with the admin key)\n" if platform.console_url else ""
    return (
        f"[bold green]Coterie is up[/] at [bold]{platform.url}[/]  (interactive docs: {platform.url}/docs)\n"
        f"{console}admin key: {platform.admin_key_file}    logs: {platform.data / 'logs'}\n"
        "Ctrl-C stops it."
    )


def _watch(platform: PlatformProcesses) -> None:
    """Restart services that exit; raise when one exits too often."""
    ends: dict[str, list[float]] = {}
    while True:
        name = platform.ended()
        if name is not None:
            now = time.monotonic()
            ends[name] = [*(at for at in ends.get(name, ()) if now - at < _SPAN_SECONDS), now]
            log = platform.data / "logs" / f"{name}.log"
            if len(ends[name]) > _MOST_ENDS:
                raise CoterieError(f"{name} exited {len(ends[name])} times in a minute; see {log}")
            code = platform.start_again(name)
            err.print(f"{name} exited with code {code} and was restarted; see {log}", markup=False)
        time.sleep(_WATCH_SECONDS)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt

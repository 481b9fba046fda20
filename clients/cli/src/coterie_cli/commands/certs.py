"""`coterie certs`: a certificate authority and one certificate per service, for gRPC beyond loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie_cli.console import AsJson, Mistake, show, table
from coterie_cli.processes import SERVICES

EPILOG = """[bold]Example[/]  coterie certs --out deploy/certs --name trust=trust.internal

Give each service its folder as COTERIE_TLS_DIR.
"""


def certs(
    folder: Annotated[Path, typer.Option("--out", help="Folder to make; one folder per service within.")],
    name: Annotated[list[str], typer.Option(help="A further host name, as service=host; repeat for more.")] = [],  # noqa: B006 - typer reads it only
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long the certificates are good for.")] = 365,
    as_json: AsJson = False,
) -> None:
    """Make a certificate authority and service certificates for mutual TLS; an authority that is there is kept."""
    try:
        from coterie_cli.certificates import make_certificates
    except ImportError as error:
        raise Mistake("making certificates needs the package cryptography: pip install cryptography") from error
    hosts = {service: [service, "localhost", "127.0.0.1"] for service in SERVICES}
    for pair in name:
        service, _, host = pair.partition("=")
        if service not in hosts or not host:
            raise Mistake(f"--name {pair!r} must be service=host with one of {', '.join(SERVICES)}")
        hosts[service].append(host)
    made = make_certificates(folder, hosts, days)
    document = {service: str(path) for service, path in made.items()}
    show(document, as_json, lambda: table("", ["service", "COTERIE_TLS_DIR"], document.items()))

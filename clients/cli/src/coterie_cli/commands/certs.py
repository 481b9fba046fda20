"""`coterie certs`: a certificate authority and one certificate per service, for gRPC beyond loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie_cli.console import AsJson, Mistake, err, show, table
from coterie_cli.processes import SERVICES, STATION

EPILOG = """[bold]Examples[/]

coterie certs --out deploy/certs --name trust=trust.internal    [dim]make them, or renew them[/]\n
coterie certs --out deploy/certs --new-authority                [dim]then renew them, then --forget-old[/]

Give each service only its own folder, as COTERIE_TLS_DIR. Keep the folder "authority" on a machine without services: it
can make certificates of any service.
"""

HOLDERS = (*SERVICES, STATION)
"""Holders of certificates: each service, and all base stations together, which authenticate with tokens."""


def certs(
    folder: Annotated[Path, typer.Option("--out", help="Output folder, with one folder per service.")],
    name: Annotated[list[str], typer.Option(help="A further host name, as service=host; repeat for more.")] = [],  # noqa: B006 - typer reads it only
    days: Annotated[int, typer.Option(min=1, max=3650, help="Validity of the certificates in days.")] = 365,
    new_authority: Annotated[
        bool, typer.Option("--new-authority", help="Replace the authority; services accept both.")
    ] = False,
    forget_old: Annotated[
        bool, typer.Option("--forget-old", help="Stop accepting the replaced authority; renew certificates first.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make or renew service certificates for mutual TLS; running services reload them.

    An existing authority is kept unless --new-authority is given.
    """
    if new_authority and forget_old:
        raise Mistake("give one option at a time: first --new-authority, then neither to renew, then --forget-old")
    try:
        from coterie_cli.certificates import forget_authority, make_certificates, replace_authority
    except ImportError as error:
        raise Mistake("making certificates needs the package cryptography: pip install cryptography") from error
    hosts = {service: [service, "localhost", "127.0.0.1"] for service in HOLDERS}
    for pair in name:
        service, _, host = pair.partition("=")
        if service not in hosts or not host:
            raise Mistake(f"--name {pair!r} must be service=host with one of {', '.join(HOLDERS)}")
        hosts[service].append(host)
    try:
        if new_authority:
            folders = replace_authority(folder, HOLDERS)
        else:
            folders = forget_authority(folder, HOLDERS) if forget_old else make_certificates(folder, hosts, days)
    except ValueError as error:
        raise Mistake(str(error)) from error
    if new_authority:
        err.print(
            "Services will accept both authorities. 1. Copy these folders to the services. 2. Run this without "
            "--new-authority to make certificates of the new one, and copy. 3. Run it with --forget-old, and copy."
        )
    document = {service: str(path) for service, path in folders.items()}
    show(document, as_json, lambda: table("", ["service", "COTERIE_TLS_DIR"], document.items()))

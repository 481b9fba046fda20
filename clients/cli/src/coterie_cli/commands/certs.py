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

Give each service its own folder as COTERIE_TLS_DIR and no other. Keep the folder "authority", which makes certificates
of any service, where no service runs.
"""

HOLDERS = (*SERVICES, STATION)
"""Who has a certificate: services, and base stations, which share one and are told apart by their tokens."""


def certs(
    folder: Annotated[Path, typer.Option("--out", help="Folder to make; one folder per service within.")],
    name: Annotated[list[str], typer.Option(help="A further host name, as service=host; repeat for more.")] = [],  # noqa: B006 - typer reads it only
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long the certificates are good for.")] = 365,
    new_authority: Annotated[
        bool, typer.Option("--new-authority", help="Replace the authority; both are accepted, certificates stay.")
    ] = False,
    forget_old: Annotated[
        bool, typer.Option("--forget-old", help="Accept the replaced authority no more; renew certificates before.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make or renew service certificates for mutual TLS; running services notice by themselves.

    An authority that is there is kept, unless --new-authority says otherwise.
    """
    if new_authority and forget_old:
        raise Mistake("--new-authority comes first, then a run without either to renew, then --forget-old")
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
            made = replace_authority(folder, HOLDERS)
        else:
            made = forget_authority(folder, HOLDERS) if forget_old else make_certificates(folder, hosts, days)
    except ValueError as error:
        raise Mistake(str(error)) from error
    if new_authority:
        err.print(
            "Both authorities are accepted now. Copy these folders to the services; then run this without "
            "--new-authority, which makes certificates of the new one, and copy; then with --forget-old, and copy."
        )
    document = {service: str(path) for service, path in made.items()}
    show(document, as_json, lambda: table("", ["service", "COTERIE_TLS_DIR"], document.items()))

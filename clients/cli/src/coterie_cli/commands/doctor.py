"""`coterie doctor`: find problems of this machine or of a platform, with advice."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Literal

import httpx
import typer
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from coterie import version
from coterie.client import Platform
from coterie.errors import CoterieError
from coterie.protocol.transport import Backoff
from coterie_cli.console import DEFAULT_DATA, FAILED, AsJson, Key, Mistake, Url, default_key, default_url, err, show
from coterie_cli.processes import DEFAULT_PORTS, busy_port

EPILOG = """[bold]Examples[/]

coterie doctor\n
coterie doctor --data /srv/coterie\n
coterie doctor --url https://coterie.example --json
"""
LITTLE_DISK, TOO_LITTLE_DISK = 1 << 30, 100 << 20
CLOCK_SECONDS = 5.0
RENEW_DAYS = 30
_MARKS = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "bad": "[bold red]bad[/]"}
_CHILD_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check, with advice unless it is ok."""

    check: str
    state: Literal["ok", "warn", "bad"]
    result: str
    advice: str = ""


def doctor(
    data: Annotated[Path, typer.Option(help="Folder of the platform's data on this machine.")] = DEFAULT_DATA,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Check disk, data folder, databases, blob store, certificates, ports, clock and versions.

    Exit code 1 if a check is bad. Reads COTERIE_… variables as the services do.
    """
    with err.status("checking …"):
        findings = [*_machine(data), *_platform(url or default_url(), key)]
    rows = [(_MARKS[finding.state], finding.check, finding.result, finding.advice) for finding in findings]
    show([asdict(finding) for finding in findings], as_json, lambda: _lines(rows))
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(FAILED)


def _lines(rows: list[tuple[str, str, str, str]]) -> str:
    lines = []
    for mark, check, result, advice in rows:
        lines.append(f"{mark}  [bold]{check}[/]: {result}")
        if advice:
            lines.append(f"      → {advice}")
    return "\n".join(lines)


def _machine(data: Path) -> Iterator[Finding]:
    yield from disk(data)
    yield from folder(data)
    if tls := os.environ.get("COTERIE_TLS_DIR", ""):
        yield certificate(Path(tls))
    if importlib.util.find_spec("services") is None:
        yield Finding("services", "ok", "not installed here; their databases are not checked")
        return
    done = subprocess.run(
        [sys.executable, "-m", "services.kit.runtime.doctor"],
        env={**os.environ, "COTERIE_DATA_DIR": str(data)},
        capture_output=True,
        text=True,
        timeout=_CHILD_SECONDS,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        yield Finding("services", "bad", last, "install the platform again: make install")
        return
    for item in json.loads(done.stdout):
        yield Finding(**item)


def disk(data: Path) -> Iterator[Finding]:
    """Check the free space of the data folder."""
    place = next(path for path in (data, *data.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / (1 << 30):.1f} GiB free at {place}"
    if free < LITTLE_DISK:
        state: Literal["warn", "bad"] = "bad" if free < TOO_LITTLE_DISK else "warn"
        yield Finding("disk", state, text, "make room, or move the data folder to a larger disk")
    else:
        yield Finding("disk", "ok", text)


def folder(data: Path) -> Iterator[Finding]:
    """Check the permissions of the data folder and the admin key."""
    for path in (data, data / "admin.key"):
        if not path.exists():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            advice = f"chmod {'700' if path.is_dir() else '600'} {path}"
            yield Finding("permissions", "bad", f"{path} is open to others (mode {mode:o})", advice)
        elif not os.access(path, os.R_OK | os.W_OK):
            yield Finding("permissions", "bad", f"{path} is not writable for this user", f"chown it to {os.getuid()}")
        else:
            yield Finding("permissions", "ok", f"{path} is private to its owner")


def certificate(place: Path) -> Finding:
    """Check that the certificate of a TLS folder is complete, signed by its authority and not about to expire."""
    renew = "renew with `coterie certs` and restart the services one after the other"
    try:
        own = x509.load_pem_x509_certificate((place / "cert.pem").read_bytes())
        authorities = x509.load_pem_x509_certificates((place / "ca.pem").read_bytes())
        (place / "key.pem").read_bytes()
    except (OSError, ValueError) as error:
        return Finding("certificate", "bad", f"{place}: {error}", renew)
    if not any(_signed(own, authority) for authority in authorities):
        return Finding("certificate", "bad", f"{place / 'cert.pem'} is not signed by its ca.pem", renew)
    days = (own.not_valid_after_utc - datetime.now(UTC)).total_seconds() / 86400
    if days <= 0:
        return Finding("certificate", "bad", f"ended {-days:.0f} days ago", renew)
    if days < RENEW_DAYS:
        return Finding("certificate", "warn", f"ends in {days:.0f} days", renew)
    return Finding("certificate", "ok", f"good for {days:.0f} days")


def _signed(own: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        own.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _platform(url: str, key: str) -> Iterator[Finding]:
    try:
        response = httpx.get(f"{url}/health/ready", timeout=5.0)
    except httpx.HTTPError as error:
        yield from _unreachable(url, error)
        return
    states = response.json().get("services", {}) if response.headers.get("content-type", "").endswith("json") else {}
    away = [name for name, state in states.items() if state != "serving"]
    if response.status_code != 200:
        text = f"{', '.join(away)} not serving" if away else f"{url} responds {response.status_code}"
        yield Finding("platform", "bad", text, "read the logs of these services; `coterie up` writes them to DATA/logs")
    else:
        yield Finding("platform", "ok", f"{url} serves with {', '.join(states)}")
    if date := response.headers.get("date"):
        yield clock(parsedate_to_datetime(date).timestamp() - time.time())
    yield from _versions(url, key)


def _unreachable(url: str, error: Exception) -> Iterator[Finding]:
    taken = busy_port(DEFAULT_PORTS)
    advice = "start it with `coterie up`, or name it with --url"
    if taken is not None:
        advice = f"another process listens on port {taken[1]} ({taken[0]}); stop it, or `coterie up --any-ports`"
    yield Finding("platform", "warn", f"no response from {url} ({error})", advice)


def clock(difference: float) -> Finding:
    """Check the difference of the platform's clock; the Date header is accurate to a second."""
    text = f"the platform's clock differs by {abs(difference):.0f} s"
    if abs(difference) > CLOCK_SECONDS:
        return Finding("clock", "bad", text, "synchronise both with NTP: deadlines and leases depend on it")
    return Finding("clock", "ok", text)


def _versions(url: str, key: str) -> Iterator[Finding]:
    try:
        secret = key or default_key()
    except Mistake:
        yield Finding("versions", "warn", "not checked: no admin key", "give --key")
        return
    try:
        with Platform(url, secret, backoff=Backoff(patience_seconds=2.0)) as platform:
            versions = {name: build.version for name, build in platform.versions().services.items()}
    except CoterieError as error:
        yield Finding("versions", "warn", f"not available: {error}", "give an admin's key")
        return
    kinds = {number for number in versions.values() if number} | {version.VERSION}
    if len(kinds) > 1:
        text = f"coterie {version.VERSION}; " + ", ".join(f"{name} {item or '?'}" for name, item in versions.items())
        yield Finding("versions", "warn", text, "upgrade all services to the same version")
    else:
        yield Finding("versions", "ok", f"{version.VERSION} everywhere")

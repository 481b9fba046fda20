"""Back-ups: one tar file with a platform's databases, admin key and blobs, and the SHA-256 of each.

Databases are copied while the platform runs, those of calling services first: after a restore they repeat the requests
whose results only the later copies hold, and every request is idempotent. Hard links keep the blobs that exist at the
moment of the aggregation server's copy, so no blob it names is missing. PostgreSQL is dumped in one transaction, with
blobs linked before and after it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO
from urllib.parse import parse_qs, unquote, urlsplit

from coterie import version
from coterie_cli.console import Mistake

DATABASES = ("aggregation.db", "topology.db", "pricing.db", "trust.db")
"""In the order of copying: callers before the services they call."""
ADMIN_KEY, DUMP, MANIFEST = "admin.key", "database.sql", "manifest.json"
_BLOB = re.compile(r"^blobs/([0-9a-f]{2})/(\1[0-9a-f]{62})$")
_PIECE = 1 << 20
_MOST_MANIFEST_BYTES = 1 << 30
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of a back-up. made_at: Unix seconds; sums: SHA-256 by name in the archive."""

    version: str
    made_at: float
    sums: dict[str, str]
    bytes: int

    @property
    def blobs(self) -> int:
        """Number of models, updates and letters."""
        return sum(_BLOB.match(name) is not None for name in self.sums)


def write(data: Path, file: Path, database_url: str, report: Report) -> Contents:
    """Write a back-up of the platform in `data`; `file` appears only when it is complete."""
    if file.exists():
        raise Mistake(f"{file} exists: name another file, or remove it")
    if not database_url and not any((data / name).exists() for name in DATABASES):
        raise Mistake(f"no platform in {data}: name its folder with --data")
    unfinished = file.with_name(f".{file.name}.part")
    try:
        with unfinished.open("xb") as raw, tarfile.open(fileobj=raw, mode="w") as archive:
            unfinished.chmod(0o600)
            contents = _fill(archive, data, database_url, report)
        unfinished.rename(file)
    except FileExistsError as error:
        raise Mistake(
            f"{unfinished} exists: another back-up is running, or one was killed; in that case remove the file"
        ) from error
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return contents


def _fill(archive: tarfile.TarFile, data: Path, database_url: str, report: Report) -> Contents:
    sums, size = dict[str, str](), 0
    parent = data if data.is_dir() else None
    with tempfile.TemporaryDirectory(dir=parent, prefix=".backup-") as folder:
        for name, path in _parts(data, database_url, Path(folder), report):
            sums[name] = _add(archive, name, path)
            size += path.stat().st_size
    contents = Contents(version.VERSION, time.time(), sums, size)
    text = json.dumps(asdict(contents), indent=1).encode()
    member = tarfile.TarInfo(MANIFEST)
    member.size, member.mode = len(text), 0o600
    archive.addfile(member, io.BytesIO(text))
    return contents


def _parts(data: Path, database_url: str, folder: Path, report: Report) -> Iterator[tuple[str, Path]]:
    blobs = folder / "blobs"
    if database_url:
        report("dumping the database")
        _link(data / "blobs", blobs)
        _run("pg_dump", ["--file", str(folder / DUMP)], database_url)
        yield DUMP, folder / DUMP
    for name in DATABASES:
        if (data / name).exists():
            report(f"copying {name}")
            _copy(data / name, folder / name, lambda: _link(data / "blobs", blobs))
            yield name, folder / name
            (folder / name).unlink()
    if (data / ADMIN_KEY).exists():
        yield ADMIN_KEY, data / ADMIN_KEY
    _link(data / "blobs", blobs)
    held = sorted(blobs.glob("??/*"))
    for number, path in enumerate(held):
        if number % 100 == 0:
            report(f"copying blobs: {number} of {len(held)}")
        yield f"blobs/{path.parent.name}/{path.name}", path


def _copy(database: Path, copy: Path, meanwhile: Callable[[], None]) -> None:
    """Copy a database as of one moment; `meanwhile` runs at that moment, while writers wait."""
    with (
        closing(sqlite3.connect(database, isolation_level=None, timeout=60.0)) as writer,
        closing(sqlite3.connect(database, isolation_level=None, timeout=60.0)) as reader,
        closing(sqlite3.connect(copy)) as target,
    ):
        writer.execute("BEGIN IMMEDIATE")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the snapshot starts here
        meanwhile()
        writer.execute("ROLLBACK")
        reader.backup(target, pages=4096)


def _link(blobs: Path, folder: Path) -> None:
    """Link all blobs, so that a round that closes meanwhile cannot delete them."""
    for path in blobs.glob("??/*"):
        name = f"{path.parent.name}/{path.name}"
        if not _BLOB.match(f"blobs/{name}") or (folder / name).exists():
            continue
        (folder / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # deleted since it was listed: no database names it
            try:
                os.link(path, folder / name)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP):
                    raise
                shutil.copyfile(path, folder / name)


def _run(name: str, arguments: list[str], database_url: str) -> None:
    """Run a PostgreSQL command; the password goes through the environment, not the arguments."""
    if shutil.which(name) is None:
        raise Mistake(f"{name} is not installed: install PostgreSQL's client (apt-get install postgresql-client)")
    url = urlsplit(database_url)
    query = {key: values[0] for key, values in parse_qs(url.query).items()}
    variables = {
        "PGHOST": query.get("host") or url.hostname,
        "PGPORT": query.get("port") or url.port,
        "PGUSER": url.username,
        "PGPASSWORD": url.password,
        "PGDATABASE": url.path.lstrip("/"),
    }
    environment = {key: unquote(str(value)) for key, value in variables.items() if value}
    done = subprocess.run(
        [name, "--no-password", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Mistake(f"{name} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")


def _add(archive: tarfile.TarFile, name: str, path: Path) -> str:
    with path.open("rb") as file:
        sum_ = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        member = tarfile.TarInfo(name)
        member.size, member.mode, member.mtime = path.stat().st_size, 0o600, int(time.time())
        archive.addfile(member, file)
    return sum_


def check(file: Path, report: Report) -> Contents:
    """Read a whole back-up; raise Mistake unless every part matches its sum and the databases are intact."""
    with tempfile.TemporaryDirectory(prefix="coterie-check-") as folder:
        return _unpack(file, Path(folder), report, keep_blobs=False)


def restore(file: Path, data: Path, database_url: str, report: Report) -> Contents:
    """Unpack a back-up into a new or empty folder, and a dump into an empty database."""
    if data.exists() and any(data.iterdir()):
        raise Mistake(f"{data} is not empty: name another folder or move this one away; a restore overwrites nothing")
    data.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=data.parent, prefix=f".{data.name}-restore-"))
    try:
        contents = _unpack(file, unfinished, report, keep_blobs=True)
        if DUMP in contents.sums:
            if not database_url:
                raise Mistake("the back-up holds a PostgreSQL dump: set COTERIE_DATABASE_URL to an empty database")
            report("restoring the database")
            how = ["--no-psqlrc", "--quiet", "--single-transaction", "--set", "ON_ERROR_STOP=1"]
            _run("psql", [*how, "--file", str(unfinished / DUMP)], database_url)
            (unfinished / DUMP).unlink()
        if data.exists():
            data.rmdir()
        unfinished.rename(data)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return contents


def _unpack(file: Path, folder: Path, report: Report, *, keep_blobs: bool) -> Contents:
    sums, manifest = dict[str, str](), b""
    try:
        with tarfile.open(file, mode="r:") as archive:
            for number, member in enumerate(archive):
                if number % 100 == 0:
                    report(f"reading {member.name[:40]}")
                content = archive.extractfile(member) if member.isreg() else None
                if content is None or not _expected(member.name) or member.name in sums:
                    raise Mistake(
                        f"{file} holds {member.name[:80]!r}, which no back-up holds; use a file of `coterie backup`"
                    )
                if member.name == MANIFEST:
                    manifest = content.read(_MOST_MANIFEST_BYTES)
                    continue
                keep = keep_blobs or not _BLOB.match(member.name)
                sums[member.name] = _extract(content, folder / member.name if keep else None)
    except (tarfile.TarError, EOFError) as error:
        raise Mistake(f"{file} is damaged or not a back-up: {error}") from error
    except OSError as error:
        raise Mistake(f"{file} cannot be read or unpacked: {error}") from error
    contents = _manifest(file, manifest)
    _compare(file, contents, sums)
    for name in DATABASES:
        if name in sums:
            _require_intact(file, folder / name)
    return contents


def _expected(name: str) -> bool:
    return name in (*DATABASES, ADMIN_KEY, DUMP, MANIFEST) or _BLOB.match(name) is not None


def _extract(content: IO[bytes], target: Path | None) -> str:
    hasher = hashlib.sha256()
    if target is None:
        while piece := content.read(_PIECE):
            hasher.update(piece)
        return hasher.hexdigest()
    for folder in (target.parent.parent, target.parent):  # mkdir(parents=True) ignores the mode of the upper one
        folder.mkdir(mode=0o700, exist_ok=True)
    with target.open("xb") as file:
        target.chmod(0o600)
        while piece := content.read(_PIECE):
            hasher.update(piece)
            file.write(piece)
    return hasher.hexdigest()


def _manifest(file: Path, text: bytes) -> Contents:
    if not text:
        raise Mistake(f"{file} ends before its list of sums: it is truncated; make another back-up")
    try:
        return Contents(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise Mistake(f"{file} has an unreadable list of sums: {error}; make another back-up") from error


def _compare(file: Path, contents: Contents, sums: dict[str, str]) -> None:
    for name in sorted(contents.sums.keys() | sums.keys()):
        if contents.sums.get(name) != sums.get(name):
            what = "is missing" if name not in sums else "differs from the stored file"
            raise Mistake(f"{file}: {name} {what}; make another back-up")
        blob = _BLOB.match(name)
        if blob and blob[2] != sums[name]:
            raise Mistake(f"{file}: {name} does not match the digest in its name; it was damaged before the back-up")


def _require_intact(file: Path, database: Path) -> None:
    with closing(sqlite3.connect(f"file:{database}?mode=ro&immutable=1", uri=True)) as connection:
        try:
            (result,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            result = str(error)
    if result != "ok":
        raise Mistake(f"{file}: {database.name} is damaged ({result}); make another back-up")

"""Back-ups: damaged, truncated or forged archives are refused; existing files are never overwritten."""

from __future__ import annotations

import hashlib
import io
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from coterie_cli import archive
from coterie_cli.console import Mistake

BLOB = b"a model"
NAME = hashlib.sha256(BLOB).hexdigest()
SERVICES = ("trust.db", "topology.db", "pricing.db", "aggregation.db")


def quiet(_: str) -> None:
    """Discard progress messages."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A small data folder: four databases, the admin's key, a blob, and things that are no part of a back-up."""
    folder = tmp_path / "data"
    (folder / "blobs" / NAME[:2]).mkdir(parents=True)
    (folder / "blobs" / NAME[:2] / NAME).write_bytes(BLOB)
    (folder / "blobs" / "staging").mkdir()
    (folder / "blobs" / "staging" / "half").write_bytes(b"half")
    (folder / "admin.key").write_text("secret")
    (folder / "url").write_text("http://127.0.0.1:1")
    for name in SERVICES:
        with closing(sqlite3.connect(folder / name)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE notes (what TEXT)")
            connection.execute("INSERT INTO notes VALUES (?)", (name,))
            connection.commit()
    return folder


@pytest.fixture
def file(data: Path, tmp_path: Path) -> Path:
    archive.write(data, tmp_path / "whole.tar", "", quiet)
    return tmp_path / "whole.tar"


def rewritten(file: Path, change: Callable[[str, bytes], bytes | None], *more: tarfile.TarInfo) -> Path:
    """The archive with each part as `change` makes it (None: left out), and further members."""
    changed = file.with_name("changed.tar")
    with tarfile.open(file) as source, tarfile.open(changed, "w") as target:
        for member in source:
            content = source.extractfile(member)
            assert content is not None
            if (new := change(member.name, content.read())) is not None:
                member.size = len(new)
                target.addfile(member, io.BytesIO(new))
        for member in more:
            target.addfile(member, io.BytesIO(bytes(member.size)))
    return changed


def test_restored_files_are_identical_and_private(data: Path, file: Path, tmp_path: Path) -> None:
    contents = archive.restore(file, tmp_path / "new" / "place", "", quiet)
    place = tmp_path / "new" / "place"
    assert contents == archive.check(file, quiet)
    assert contents.blobs == 1
    assert {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()} == {
        *SERVICES,
        "admin.key",
        f"blobs/{NAME[:2]}/{NAME}",
    }
    assert not [path for path in [file, place, *place.rglob("*")] if path.stat().st_mode & 0o077]
    for name in SERVICES:
        with closing(sqlite3.connect(place / name)) as connection:
            assert connection.execute("SELECT what FROM notes").fetchall() == [(name,)]
    assert not list(data.glob(".backup-*"))


def test_back_up_includes_commits_beside_an_open_reader(data: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(data / "pricing.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM notes").fetchall()
        with closing(sqlite3.connect(data / "pricing.db")) as writer:
            writer.execute("INSERT INTO notes VALUES ('more')")
            writer.commit()
        archive.write(data, tmp_path / "a.tar", "", quiet)
    archive.restore(tmp_path / "a.tar", tmp_path / "b", "", quiet)
    with closing(sqlite3.connect(tmp_path / "b" / "pricing.db")) as connection:
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (2,)


def test_nothing_is_overwritten(data: Path, file: Path, tmp_path: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(Mistake, match="exists: name another file"):
        archive.write(data, file, "", quiet)
    assert file.read_bytes() == before
    with pytest.raises(Mistake, match="not empty"):
        archive.restore(file, data, "", quiet)
    with pytest.raises(Mistake, match="no platform"):
        archive.write(tmp_path / "nowhere", tmp_path / "b.tar", "", quiet)
    assert not (tmp_path / "b.tar").exists()


@pytest.mark.parametrize("part", ["trust.db", "admin.key", f"blobs/{NAME[:2]}/{NAME}"])
def test_a_changed_or_missing_part_is_named(file: Path, tmp_path: Path, part: str) -> None:
    changed = rewritten(file, lambda name, text: text[:-1] + b"x" if name == part else text)
    with pytest.raises(Mistake, match=f"{part} differs from the stored file"):
        archive.check(changed, quiet)
    with pytest.raises(Mistake, match=f"{part} is missing"):
        archive.restore(rewritten(file, lambda name, text: None if name == part else text), tmp_path / "new", "", quiet)
    assert not (tmp_path / "new").exists()
    assert not list(tmp_path.glob(".new-restore-*"))


def test_a_cut_off_archive_is_refused(file: Path) -> None:
    cut = file.with_name("cut.tar")
    cut.write_bytes(file.read_bytes()[:-11_000])
    with pytest.raises(Mistake, match=r"cut off|damaged|missing"):
        archive.check(cut, quiet)
    cut.write_bytes(b"no archive at all" * 100)
    with pytest.raises(Mistake, match="damaged or not a back-up"):
        archive.check(cut, quiet)


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "blobs/../../outside", f"blobs/00/{NAME}", "sockets/a"])
def test_archive_with_a_path_outside_is_refused(file: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(Mistake, match="which no back-up holds"):
        archive.restore(rewritten(file, lambda _, text: text, tarfile.TarInfo(name)), tmp_path / "new", "", quiet)
    assert not (tmp_path / "outside").exists()


def test_a_link_in_an_archive_is_refused(file: Path, tmp_path: Path) -> None:
    link = tarfile.TarInfo("topology.db")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    without = rewritten(file, lambda name, text: None if name == "topology.db" else text, link)
    with pytest.raises(Mistake, match="which no back-up holds"):
        archive.restore(without, tmp_path / "new", "", quiet)


def test_blob_deleted_during_the_back_up_is_included(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round closes and takes its updates away right after the aggregation server's database was copied."""

    def tell(what: str) -> None:
        if what == "copying topology.db":
            (data / "blobs" / NAME[:2] / NAME).unlink()

    contents = archive.write(data, tmp_path / "a.tar", "", tell)
    assert contents.blobs == 1
    assert archive.check(tmp_path / "a.tar", quiet).blobs == 1

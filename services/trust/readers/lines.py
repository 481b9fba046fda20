"""Opens a text file, plain, gzipped or inside a tar archive, and yields its lines with their numbers.

Memory does not depend on the file's size. An importer resumes by passing the number of its last stored line as
`skip_lines`.
"""

from __future__ import annotations

import gzip
import io
import math
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from services.kit.errors import InvalidInput, NotFound


class MissingDataFile(NotFound):
    """A data file is missing; the message says where to get it."""


class BadLine(InvalidInput):
    """A line that cannot be read, named by file and number."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file, its comma- or space-separated fields and its number (from 1)."""

    file: str
    number: int
    fields: tuple[str, ...]

    def integer(self, column: int, name: str) -> int:
        """Return the field as a whole number, written with or without a fraction of zero."""
        value = self.number_at(column, name)
        if value != int(value):
            raise self.bad(f"{name} must be a whole number, got {self.fields[column]!r}")
        return int(value)

    def number_at(self, column: int, name: str) -> float:
        """Return the field as a finite number."""
        try:
            value = float(self.fields[column])
        except ValueError as error:
            raise self.bad(f"{name} must be a number, got {self.fields[column]!r}") from error
        if not math.isfinite(value):
            raise self.bad(f"{name} must be finite, got {self.fields[column]!r}")
        return value

    def bad(self, what: str) -> BadLine:
        """Return an error about this line, to raise."""
        return BadLine(f"{self.file}, line {self.number}: {what}", details={"line": str(self.number)})


@contextmanager
def open_text(path: Path, *, source: str) -> Iterator[TextIO]:
    """Open a text stream over `path`, gunzipped if its name ends in .gz; `source` says where to get the file."""
    if not path.is_file():
        raise MissingDataFile(f"{path.name} is missing from {path.parent}; get it from {source}")
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig") as stream:
        yield stream


@contextmanager
def open_member(folder_or_archive: Path, name: str, *, source: str) -> Iterator[TextIO]:
    """Open a text stream over file `name` of a folder or of a tar archive (plain or compressed)."""
    if folder_or_archive.is_dir():
        with open_text(folder_or_archive / name, source=source) as stream:
            yield stream
        return
    if not folder_or_archive.is_file():
        raise MissingDataFile(
            f"{folder_or_archive.name} is missing from {folder_or_archive.parent}; get it from {source}"
        )
    with tarfile.open(folder_or_archive) as archive:
        try:
            member = archive.extractfile(name)
        except KeyError:
            member = None
        if member is None:
            raise MissingDataFile(f"{name} is missing from {folder_or_archive}; get it from {source}")
        with io.TextIOWrapper(member, encoding="utf-8") as stream:
            yield stream


def lines(
    stream: TextIO, file: str, *, columns: int, separator: str | None = ",", header: bool = True, skip_lines: int = 0
) -> Iterator[Line]:
    """Yield every line after `skip_lines` with at least `columns` fields, split at `separator` (None: white space).

    Blank lines, lines that start with # and, with `header`, the first line are skipped but counted. A byte that is
    not UTF-8, or too few fields, raises `BadLine`.
    """
    number = 0
    try:
        for number, text in enumerate(stream, start=1):
            stripped = text.strip()
            if number <= max(skip_lines, int(header)) or not stripped or stripped.startswith("#"):
                continue
            line = Line(file, number, tuple(field.strip() for field in stripped.split(separator)))
            if len(line.fields) < columns:
                raise line.bad(f"expected {columns} fields, got {len(line.fields)}: {stripped[:60]!r}")
            yield line
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise BadLine(f"{file}, after line {number}: cannot be read as text: {error}") from error

"""Edge lists as published by SNAP: two node numbers a line, # starts a comment; plain or gzipped.

The Facebook ego network (McAuley & Leskovec 2012) is `facebook_combined.txt.gz`: 4,039 nodes, 88,234 ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from services.trust.readers.lines import lines, open_text

SOURCE = "https://snap.stanford.edu/data/ego-Facebook.html"


@dataclass(frozen=True, slots=True)
class Edge:
    """An undirected tie and its line."""

    line: int
    a: int
    b: int


def read_ties(path: Path, *, skip_lines: int = 0, source: str = SOURCE) -> Iterator[Edge]:
    """Yield every tie of the file in order, from the line after `skip_lines`; a tie within one node is an error."""
    with open_text(path, source=source) as stream:
        for line in lines(stream, path.name, columns=2, separator=None, header=False, skip_lines=skip_lines):
            tie = Edge(line.number, line.integer(0, "node"), line.integer(1, "node"))
            if tie.a < 0 or tie.b < 0 or tie.a == tie.b:
                raise line.bad(f"a tie needs two different nodes numbered from 0, got {tie.a} and {tie.b}")
            yield tie

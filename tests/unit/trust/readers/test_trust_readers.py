"""Readers: streams with line numbers, resumable, errors by file and line; a synthetic city written and read back."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest

from coterie_lab.datasets import santander
from services.trust.readers.interactions import ReportedInteraction, read_interactions
from services.trust.readers.lines import BadLine, MissingDataFile
from services.trust.readers.snap import Edge, read_ties

EDGES = "# a comment\n0 1\n\n1\t2\n2 0\n"


@pytest.mark.parametrize("name", ["edges.txt", "edges.txt.gz"])
def test_an_edge_list_is_read_with_line_numbers_and_resumed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(EDGES.encode()) if name.endswith(".gz") else EDGES.encode())
    assert list(read_ties(path)) == [Edge(2, 0, 1), Edge(4, 1, 2), Edge(5, 2, 0)]
    assert list(read_ties(path, skip_lines=4)) == [Edge(5, 2, 0)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 1\n0\n", "edges.txt, line 2: expected 2 fields"),
        ("0 1\n0 x\n", "line 2: node must be a number, got 'x'"),
        ("0 1.5\n", "line 1: node must be a whole number"),
        ("0 nan\n", "line 1: node must be finite"),
        ("3 3\n", "line 1: a tie needs two different nodes"),
        ("-1 3\n", "line 1: a tie needs"),
    ],
)
def test_a_bad_edge_is_named_by_file_and_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "edges.txt").write_text(text)
    with pytest.raises(BadLine, match=says):
        list(read_ties(tmp_path / "edges.txt"))


def test_what_comes_before_a_bad_line_is_yielded(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("0 1\noops\n")
    reader = read_ties(tmp_path / "edges.txt")
    assert next(reader) == Edge(1, 0, 1)
    with pytest.raises(BadLine) as caught:
        next(reader)
    assert caught.value.details == {"line": "2"}


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_bytes(b"0 1\n\xff\xfe\n")
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(EDGES.encode() * 1000)[:-20])
    for name in ("edges.txt", "cut.txt.gz"):
        with pytest.raises(BadLine, match=f"{name}, after line"):
            list(read_ties(tmp_path / name))


def test_a_missing_file_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(MissingDataFile, match=r"facebook_combined.txt.gz is missing from .*snap.stanford.edu"):
        list(read_ties(tmp_path / "facebook_combined.txt.gz"))
    with pytest.raises(MissingDataFile, match=r"objects_description.csv is missing from .*social-iot.org"):
        santander.read_city(tmp_path)
    with pytest.raises(MissingDataFile, match=r"santander.tar.gz is missing"):
        santander.read_city(tmp_path / "santander.tar.gz")
    with tarfile.open(tmp_path / "empty.tar.gz", "w:gz"):
        pass
    with pytest.raises(MissingDataFile, match=r"objects_description.csv is missing from .*empty.tar.gz"):
        santander.read_city(tmp_path / "empty.tar.gz")


INTERACTIONS = "a,b,positive,duration,at\nann,bob,1,30,100\nbob,cy,FALSE,0.5,200.5\ncy,ann,yes,2,300\n"


def test_interactions_are_read_and_resumed(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("\ufeff" + INTERACTIONS, encoding="utf-8")
    everything = list(read_interactions(path))
    assert everything[1] == ReportedInteraction(3, "bob", "cy", False, 0.5, 200.5)
    assert [item.line for item in everything] == [2, 3, 4]
    assert list(read_interactions(path, skip_lines=3)) == everything[2:]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("ann,ann,1,1,1", "two different named devices"),
        (",ann,1,1,1", "two different named devices"),
        ("ann,bob,maybe,1,1", "positive must be one of"),
        ("ann,bob,1,-1,1", "duration must be ≥ 0"),
        ("ann,bob,1,1,inf", "at must be finite"),
        ("ann,bob,1,1", "expected 5 fields, got 4"),
    ],
)
def test_a_bad_interaction_is_named_by_line(tmp_path: Path, row: str, says: str) -> None:
    (tmp_path / "log.csv").write_text(f"{INTERACTIONS}{row}\n")
    with pytest.raises(BadLine, match=f"log.csv, line 5: .*{says}"):
        list(read_interactions(tmp_path / "log.csv"))


def test_interactions_need_their_header(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("ann,bob,1,30,100\n")
    with pytest.raises(BadLine, match="line 1: the header must be a,b,positive,duration,at"):
        list(read_interactions(tmp_path / "log.csv"))

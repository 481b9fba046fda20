"""Data files as the rows of an import."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from services.trust.__main__ import main
from services.trust.commands import rows


def printed(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    stream = io.BytesIO()
    code = rows.main(arguments, stream)
    return code, [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    path = tmp_path / "faces.txt.gz"
    path.write_bytes(gzip.compress(b"# a comment\n0 1\n1 2\n"))
    return path


def test_a_tie_becomes_a_relation_and_one_good_interaction(edges: Path) -> None:
    code, (header, *nodes, first, second) = printed("snap", str(edges), "--at", "1000")
    assert code == 0
    assert header == {"name": "faces", "owner_name": "faces", "synthetic": False, "lines": 6}
    assert first["relation"] == {
        "kind": "social", "a": "faces-0", "b": "faces-1", "strength": 1.0, "because": "a tie in faces.txt.gz",
    }  # fmt: skip
    assert first["interaction"] == {
        "device_a": "faces-0", "device_b": "faces-1", "positive": True, "duration_seconds": rows.FULL_SECONDS,
        "at": 1000.0, "kind": "tie",
    }  # fmt: skip
    assert [row["line"] for row in (*nodes, first, second)] == [1, 2, 3, 5, 6]


def test_every_node_is_a_device_of_its_own_owner(edges: Path) -> None:
    """Nodes are people: one owner for all would relate all devices, and with priors make them trust each other."""
    _, (_, *nodes, _, _) = printed("snap", str(edges))
    owners = [(row["device"]["name"], row["owner_name"]) for row in nodes]
    assert owners == [(f"faces-{node}", f"faces user {node}") for node in range(3)]


@pytest.mark.parametrize("after", range(8))
def test_an_import_goes_on_behind_any_line(edges: Path, after: int) -> None:
    _, (_, *everything) = printed("snap", str(edges), "--at", "1000")
    _, (_, *rest) = printed("snap", str(edges), "--at", "1000", "--after", str(after))
    assert rest == [row for row in everything if row["line"] > after]


def test_ties_may_be_relations_alone(edges: Path) -> None:
    _, (header, *_, row) = printed("snap", str(edges), "--no-evidence", "--name", "f", "--owner", "Ada")
    assert (header["name"], header["owner_name"], row["relation"]["a"]) == ("f", "Ada", "f-1")
    assert "interaction" not in row


def test_interactions_keep_names_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "meetings.csv"
    path.write_text("a,b,positive,duration,at\nphone,lamp,no,30,1000\n")
    _, (header, row) = printed("interactions", str(path))
    assert (header["name"], header["lines"], row["line"]) == ("meetings", 2, 2)
    act = row["interaction"]
    assert (act["device_a"], act["device_b"], act["positive"], act["at"]) == ("phone", "lamp", False, 1000.0)


def test_a_bad_line_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In an edge list before any row; in interactions after the good ones."""
    ties, acts = tmp_path / "ties.txt", tmp_path / "acts.csv"
    ties.write_text("0 1\n1 1\n")
    acts.write_text("a,b,positive,duration,at\na,b,1,60,1000\na,b,1,-1,1000\n")
    assert printed("snap", str(ties)) == (2, [])
    assert "ties.txt, line 2: a tie needs two different nodes" in capsys.readouterr().err
    code, (_, good) = printed("interactions", str(acts))
    assert (code, good["line"]) == (2, 2)
    assert "acts.csv, line 3: duration must be" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("snap", "nowhere.txt"), "nowhere.txt is missing"),
        (("snap", "nowhere.txt", "--name", "n" * 61), "--name must have 1 to 60 characters, got 61"),
    ],
)
def test_unreadable_input_is_reported_in_one_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rows", *arguments]) == 2
    complaint = capsys.readouterr().err
    assert message in complaint
    assert complaint.count("\n") == 1

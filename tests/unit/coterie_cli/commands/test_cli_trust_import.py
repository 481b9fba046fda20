"""`coterie trust import` and `generate`: batches, resumption, complaints, Ctrl-C."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coterie.client import Platform
from coterie.errors import InvalidRequest, NotFound
from coterie_cli.commands import trust, trust_import
from coterie_cli.console import Mistake


class Registry(Platform):
    """A platform that stores rows by line, and may refuse one or be interrupted."""

    def __init__(self) -> None:
        super().__init__("http://registry")
        self.headers: list[dict[str, Any]] = []
        self.rows: dict[int, dict[str, Any]] = {}
        self.posts = 0
        self.refuse_line = 0
        self.interrupt_after = -1

    def request(self, method: str, path: str, *, content: Any = None, **_: Any) -> dict[str, Any]:
        if method == "GET":
            self.asked = path
            if not self.rows:
                raise NotFound("no import of that name", status=404)
            return self._progress()
        if self.posts == self.interrupt_after:
            raise KeyboardInterrupt
        self.posts += 1
        header, *rows = (json.loads(line) for line in content().splitlines())
        self.headers.append(header)
        for row in rows:
            if row["line"] == self.refuse_line:
                raise InvalidRequest(f"line {row['line']}: too short", status=400)
            self.rows.setdefault(row["line"], row)
        return self._progress()

    def _progress(self) -> dict[str, Any]:
        ties = sum("relation" in row for row in self.rows.values())
        devices = sum("device" in row for row in self.rows.values())
        return {"last_line": max(self.rows, default=0), "devices": devices, "interactions": ties, "relations": ties}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    made = Registry()
    monkeypatch.setattr(trust_import, "connect", lambda url, key: made)
    monkeypatch.setattr(trust_import, "BATCH_ROWS", 4)
    return made


@pytest.fixture
def ties(tmp_path: Path) -> Path:
    """Five nodes and six ties: eleven rows."""
    path = tmp_path / "faces.txt"
    path.write_text("0 1\n0 2\n0 3\n0 4\n1 2\n1 3\n")
    return path


def run(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(trust.app, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def test_a_file_goes_in_batches_under_one_header(registry: Registry, ties: Path) -> None:
    counts = run("import", str(ties), "--format", "snap", "--name", "faces 1")
    assert counts == {
        "name": "faces 1", "lines": 11, "last_line": 11, "devices": 5, "interactions": 6, "relations": 6,
    }  # fmt: skip
    assert registry.posts == 3
    assert {header["name"] for header in registry.headers} == {"faces 1"}
    assert registry.asked == "/v1/trust/imports/faces%201"


def test_interrupted_import_resumes_after_the_last_stored_line(registry: Registry, ties: Path) -> None:
    registry.interrupt_after = 1
    result = CliRunner().invoke(trust.app, ["import", str(ties), "--format", "snap"])
    assert isinstance(result.exception, KeyboardInterrupt | SystemExit)
    assert "the same command resumes after them" in result.stderr
    assert sorted(registry.rows) == [1, 2, 3, 4]
    registry.interrupt_after = -1
    assert run("import", str(ties), "--format", "snap")["last_line"] == 11
    assert (sorted(registry.rows), registry.posts) == (list(range(1, 12)), 3)


def test_a_bad_line_is_named_and_the_good_ones_before_it_are_sent(registry: Registry, tmp_path: Path) -> None:
    path = tmp_path / "acts.csv"
    lines = [f"phone,lamp,yes,60,{1000 + k}" for k in range(6)]
    path.write_text("\n".join(["a,b,positive,duration,at", *lines, "phone,phone,yes,60,1"]))
    with pytest.raises(Mistake, match=r"acts\.csv, line 8: an interaction needs two different"):
        run("import", str(path), "--format", "interactions")
    assert sorted(registry.rows) == [2, 3, 4, 5, 6, 7]


def test_refused_line_says_how_to_resume(registry: Registry, ties: Path) -> None:
    registry.refuse_line = 7
    with pytest.raises(Mistake, match=r"line 7: too short; .* run the same command again"):
        run("import", str(ties), "--format", "snap")


def test_ready_rows_need_no_services(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    path = tmp_path / "rows.ndjson"
    path.write_text('{"name":"town","owner_name":"Town"}\n{"line":1,"device":{"name":"lamp"}}\n')
    assert run("import", str(path), "--format", "rows")["devices"] == 1
    path.write_text('{"owner_name":"Town"}\n')
    with pytest.raises(Mistake, match="the first line must be the header"):
        run("import", str(path), "--format", "rows")
    with pytest.raises(Mistake, match="are not installed here"):
        run("import", str(path), "--format", "snap")


def test_missing_file_is_named(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=r"^nowhere\.txt is missing from"):
        run("import", str(tmp_path / "nowhere.txt"), "--format", "snap")
    assert registry.rows == {}

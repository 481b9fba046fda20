"""The threat model names tests that are there, and says for every attack what stops it."""

from __future__ import annotations

import re

from tests.architecture.test_imports import ROOT

MODEL = (ROOT / "docs" / "explanation" / "threat-model.md").read_text()
DEFINED = {
    name
    for file in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
}


def rows() -> list[list[str]]:
    """Rows of the tables attack, defence, test."""
    tables = re.findall(r"^\| attack \| defence \| test \|\n\|[-|]+\|\n((?:\|.*\n)*)", MODEL, re.MULTILINE)
    return [line.strip("| ").split(" | ") for table in tables for line in table.splitlines()]


def test_every_test_of_the_threat_model_exists() -> None:
    named = re.findall(r"`(test_\w+)`", MODEL)
    assert named
    assert [name for name in named if name not in DEFINED] == []


def test_every_attack_has_a_defence_and_a_test() -> None:
    assert rows()
    for row in rows():
        attack, defence, tests = row
        assert attack, row
        assert defence, row
        assert re.search(r"`(?:test_\w+|tests?/[\w/.]+)`", tests), f"{attack}: no test"

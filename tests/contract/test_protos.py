"""Protos: every service, RPC, message, field and word says what it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROTOS = sorted((Path(__file__).parents[2] / "protos").rglob("*.proto"))
DEFINITION = re.compile(
    r"^\s*(service|rpc|message|enum|[A-Z_]+ = \d+;|(repeated |optional )?(map<[^>]+>|[\w.]+) \w+ = \d+;)"
)


@pytest.mark.parametrize("path", PROTOS, ids=lambda path: path.stem)
def test_every_definition_is_commented(path: Path) -> None:
    lines = path.read_text().splitlines()
    bare = [
        f"{number + 1}: {line.strip()}"
        for number, line in enumerate(lines)
        if DEFINITION.match(line) and not lines[number - 1].strip().startswith("//")
    ]
    assert not bare, f"{path.name} has definitions without a comment: {bare}"


def test_areas_enums_and_batching_are_versioned_packages() -> None:
    shared = {"enums", "rpc_batching"}
    assert {path.stem for path in PROTOS} == {"trust", "topology", "pricing", "aggregation", *shared}
    for path in PROTOS:
        assert f"package coterie_api.{path.stem}.v1;" in path.read_text()

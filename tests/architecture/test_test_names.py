"""Names of tests say the behaviour in at most 70 characters."""

from __future__ import annotations

import ast

from tests.architecture.test_imports import ROOT

MOST_CHARACTERS = 70


def test_names_of_tests_are_short() -> None:
    names = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }
    assert len(names) > 2000
    assert sorted(name for name in names if len(name) > MOST_CHARACTERS) == []

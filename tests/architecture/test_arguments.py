"""Calls have at most five positional arguments, constructors at most eight parameters.

The list holds the known offenders by file and may only shrink.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.test_imports import ROOT

MOST_POSITIONAL, MOST_PARAMETERS = 5, 8
KNOWN = Path(__file__).parent / "arguments.json"
"""Offenders by file: `python -m tests.architecture.test_arguments` rewrites it."""
Offenders = dict[str, dict[str, int]]


def sources() -> Iterator[Path]:
    """Sources of services and clients, without generated code and migrations."""
    for folder in ("services", "clients"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "migrations" not in path.parts and "build" not in path.parts:
                yield path


def long_calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls with more than five positional arguments; a starred one counts as one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > MOST_POSITIONAL and not _is_variadic(node):
            yield node


def _is_variadic(call: ast.Call) -> bool:
    """Whether the callee takes any number of arguments of one kind, or passes them on to a function."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in {
        "Table",
        "add_row",
        "print",
        "to_thread",
        "thread_if_large",
        "run",
        "gather",
        "max",
        "min",
        "zip",
        "union",
        "select",
        "values",
        "join",
        "and_",
        "or_",
    }


def long_constructors(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """`__init__` methods with more than eight parameters beside self."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if len(parameters) - 1 > MOST_PARAMETERS:
                yield node


def offenders() -> Offenders:
    """How many long calls and long constructors each file has."""
    calls, constructors = Counter[str](), Counter[str]()
    for path in sources():
        tree, name = ast.parse(path.read_text()), path.relative_to(ROOT).as_posix()
        calls[name] += sum(1 for _ in long_calls(tree))
        constructors[name] += sum(1 for _ in long_constructors(tree))
    return {"calls": _positive(calls), "constructors": _positive(constructors)}


def _positive(counts: Counter[str]) -> dict[str, int]:
    return {name: count for name, count in sorted(counts.items()) if count}


@pytest.mark.parametrize("kind", ["calls", "constructors"])
def test_no_file_gains_long_argument_lists(kind: str) -> None:
    known = json.loads(KNOWN.read_text())[kind]
    more = {name: count for name, count in offenders()[kind].items() if count > known.get(name, 0)}
    assert not more, "pass arguments by keyword, or make two objects of a constructor's parameters"


@pytest.mark.parametrize("kind", ["calls", "constructors"])
def test_the_list_of_long_argument_lists_is_up_to_date(kind: str) -> None:
    now = offenders()[kind]
    fewer = {name: count for name, count in json.loads(KNOWN.read_text())[kind].items() if count > now.get(name, 0)}
    assert not fewer, "good: run python -m tests.architecture.test_arguments to lower the list"


def test_a_long_call_and_a_long_constructor_are_found() -> None:
    call = ast.parse("f(1, 2, 3, 4, 5, 6)\nf(1, 2, 3, 4, 5, six=6)")
    assert [node.lineno for node in long_calls(call)] == [1]
    assert len(list(long_constructors(ast.parse("class A:\n def __init__(self, a, b, c, d, e, f, g, h, i): ...")))) == 1


if __name__ == "__main__":
    KNOWN.write_text(json.dumps(offenders(), indent=1) + "\n")

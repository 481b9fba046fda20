"""The glossary names what is there."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from tests.architecture.test_imports import ROOT

GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
ROWS = [line.strip("| ").split(" | ") for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
WORDS = [row for row in ROWS if row[0] != "word"]


def resolve(name: str) -> Any:
    """The module, or what a module holds, of that name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("row", WORDS, ids=lambda row: str(row[0]))
def test_a_word_of_the_glossary_is_in_the_code(row: list[str]) -> None:
    word, meaning, place = row
    assert meaning, word
    names = re.findall(r"`([\w.]+)`", place)
    assert names, f"{word} has no place in the code"
    for name in names:
        assert resolve(name) is not None


def test_every_word_stands_once() -> None:
    words = [row[0] for row in WORDS]
    assert sorted(words) == sorted(set(words))


def test_the_words_of_the_wire_are_all_explained() -> None:
    """The nouns that devices, publishers and admins meet."""
    wanted = (
        "device owner relation interaction evidence trust task enrolment plan assignment round participation update "
        "delivery letter budget price quote offer payment account posting charge strategy"
    )
    assert not set(wanted.split()) - {row[0] for row in WORDS}

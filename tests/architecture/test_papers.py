"""The papers' pages name tests that are there."""

from __future__ import annotations

import re

import pytest

from tests.architecture.test_imports import ROOT
from tests.architecture.test_threats import DEFINED

PAGES = {path.stem: path.read_text() for path in sorted((ROOT / "docs" / "papers").glob("[!R]*.md"))}
FILES = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_papers_page_names_exists(page: str) -> None:
    named = set(re.findall(r"\btest_\w+", PAGES[page]))
    assert named
    assert named - DEFINED - FILES == set()

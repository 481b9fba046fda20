"""The comparison with others: every cell has its source, every source is used, and ours are pages there are."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "explanation"
TEXT = (DOCS / "compare.md").read_text()
_SOURCE = re.compile(r"\[([A-Z]\d)\]")


def rows(heading: str) -> list[list[str]]:
    """Cells of the table that begins with a heading, without heading and rule."""
    lines = TEXT[TEXT.index(heading) :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def cells() -> list[tuple[str, str, list[str]]]:
    return [(topic, ours, others) for topic, ours, *others in rows("| | Coterie")]


def test_every_comparison_cell_names_its_source_or_says_none_was_found() -> None:
    known = {name for name, _, _ in rows("| | what |")}
    assert len(cells()) >= 10
    for topic, _, others in cells():
        assert len(others) == 6
        for cell in others:
            assert cell == "–" or _SOURCE.findall(cell), f"{topic}: {cell}"
            assert set(_SOURCE.findall(cell)) <= known, f"{topic}: {cell}"


def test_every_source_says_where_and_which_and_is_used() -> None:
    used = {name for _, _, others in cells() for cell in others for name in _SOURCE.findall(cell)}
    listed = rows("| | what |")
    assert used == {name for name, _, _ in listed}
    assert all(what and re.search(r"\d|main", where) for _, what, where in listed)


def test_every_cell_about_coterie_links_to_a_page() -> None:
    for topic, ours, _ in cells():
        pages = re.findall(r"\]\(([^)#]+)", ours)
        assert pages, topic
        assert all((DOCS / page).is_file() for page in pages), topic

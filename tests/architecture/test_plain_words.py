"""Retired words stay retired.

`plain_words.json` holds how many are left in each folder. A count may only shrink; a folder without one has none.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.architecture.plain_words import Hit, hits, hits_in_code, hits_in_prose

ROOTS = ("services", "clients", "protos", "docs", "README.md", "CONTRIBUTING.md", "tests")
LEFT = Path(__file__).parent / "plain_words.json"
"""Number of retired words by folder: `python -m tests.architecture.test_plain_words` lowers it."""


def folder_of(path: str) -> str:
    """Return the folder that a file counts for: `services/trust`, `tests/unit/kit`, `docs`."""
    parts = path.split("/")[:-1] or [path]
    if parts[0] == "tests":
        return "/".join(parts[: 3 if parts[1:2] in (["unit"], ["contract"]) else 2])
    return "/".join(parts[:2]) if parts[0] in ("services", "clients") else parts[0]


def by_folder() -> dict[str, list[Hit]]:
    """Return the retired words of each folder that has some."""
    result: dict[str, list[Hit]] = {}
    for hit in hits(ROOTS):
        result.setdefault(folder_of(hit.path), []).append(hit)
    return result


def test_no_folder_gains_retired_words() -> None:
    left = json.loads(LEFT.read_text())
    more = {name: words for name, words in by_folder().items() if len(words) > left.get(name, 0)}
    text = "\n".join(f"{hit.path}:{hit.line}: {hit.word} (use: {hit.use})" for name in more for hit in more[name])
    assert not more, f"{'; '.join(f'{n}: {len(w)}, not {left.get(n, 0)}' for n, w in more.items())}\n{text[:4000]}"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("told = 1  # is told", ["told", "is told"]),
        ("def demand_key() -> None: ...", ["demand_key"]),
        ('"""Nobody waits\nanew."""', ["Nobody", "anew"]),
        ("found_at = mended = 1", []),
    ],
)
def test_the_finder_finds_names_and_prose_of_code(code: str, words: list[str]) -> None:
    assert Counter(hit.word for hit in hits_in_code("a.py", code)) == Counter(words)


def test_the_finder_finds_phrases_across_lines_of_prose() -> None:
    assert [(hit.line, hit.word) for hit in hits_in_prose("a.md", "It has one of\nits own.\nWhoever")] == [
        (3, "Whoever"),
        (1, "of its own"),
    ]


if __name__ == "__main__":
    counts = {name: len(words) for name, words in sorted(by_folder().items())}
    former = json.loads(LEFT.read_text()) if LEFT.exists() else counts
    LEFT.write_text(
        json.dumps({n: min(c, former.get(n, 0)) for n, c in counts.items() if n in former}, indent=1) + "\n"
    )

"""Every command the documentation shows exists and takes the options shown; `tests/e2e` runs the pages themselves."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

from coterie_cli.main import UsageError, app

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("clients/*/README.md")]
PAGES += [*ROOT.glob("services/*/README.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("*.md")]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELLS = ("sh", "bash", "console", "")
_PROMPT = re.compile(r"^\w+\$ ")
INDENTED = re.compile(r"^    (coterie .*)$", re.MULTILINE)
INLINE = re.compile(r"`(coterie [^`]+)`")
_JOINED = re.compile(r"\\\n\s*")
_STOPS = ("|", "&", ";", ">", "<", "&&", "||", ">>", "2>", "#", "2>&1")
COMMAND: Any = typer.main.get_command(app)


def commands_of(page: Path) -> Iterator[tuple[list[str], bool]]:
    """Words of every command `coterie …` on a page, and whether it stands whole: in running text it may be cut."""
    text = page.read_text()
    for language, block in FENCE.findall(text):
        if language in SHELLS:
            for line in _JOINED.sub(" ", block).splitlines():
                yield from ((words, True) for words in _calls(_PROMPT.sub("", line)))
    text = FENCE.sub("", text)
    for line in INDENTED.findall(text):
        yield from ((words, True) for words in _calls(line))
    for line in INLINE.findall(text):
        yield from ((words, False) for words in _calls(" ".join(line.split())))


def _calls(line: str) -> Iterator[list[str]]:
    line = line.replace("$(", " ; ").replace(")", " ) ") if "$(coterie" in line else line
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        words = line.split()
    for place, word in enumerate(words):
        if word != "coterie" or not _begins(words[:place]):
            continue
        call = []
        for item in words[place + 1 :]:
            if item in (*_STOPS, ")") or item.startswith((">", "2>")):
                break
            call.append(item.rstrip(";"))
            if item.endswith(";"):
                break
        yield call


def _begins(before: list[str]) -> bool:
    """Whether a command begins after these words; elsewhere "coterie" is what another command is about."""
    return not before or before[-1].endswith(_STOPS) or before[-1] in ("do", "then", "run") or "=" in before[-1]


def refusal(words: list[str], whole: bool) -> str:
    """Why the command line would refuse these words before it does anything; empty when it would not."""
    command, context, rest = COMMAND, None, list(words)
    while hasattr(command, "commands"):
        rest = [word for word in rest if word not in ("…", "...")] if not whole else rest
        if not rest or rest[0].startswith("-"):
            return ""
        if rest[0] not in command.commands:
            return f"no command {rest[0]!r}"
        command = command.commands[rest.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "-h"}
    if not whole:
        unknown = [word.split("=")[0] for word in rest if word.startswith("--") and word.split("=")[0] not in known]
        return f"no option {unknown[0]}" if unknown else ""
    try:
        command.make_context("coterie", rest, parent=context, resilient_parsing=False)
    except typer.Exit:  # --help
        return ""
    except UsageError as error:
        return str(error) or type(error).__name__
    return ""


def test_the_pages_show_commands_at_all() -> None:
    assert sum(1 for page in PAGES for _ in commands_of(page)) > 150


@pytest.mark.parametrize("page", sorted({str(page.relative_to(ROOT)) for page in PAGES}))
def test_every_command_shown_is_one_the_command_line_takes(page: str) -> None:
    wrong = [
        f"coterie {shlex.join(words)}: {why}"
        for words, whole in commands_of(ROOT / page)
        if (why := refusal(words, whole))
    ]
    assert not wrong, "\n".join(wrong)


LIBRARIES = {"http.server", "venv", "pytest", "cProfile", "pstats"}
MADE_UP = {"services.<name>", "coterie_lab.…", "coterie_lab.NAME", "examples/NAME.py"}
SCRIPT = re.compile(r"python3? (?:-m )?([\w./<>…]+)|(?<![\w/])(bench/\w+\.py|deploy/[\w./-]*\w)")
"""What is run by Python, and files of ours that a page tells a reader to run."""


def _is_there(name: str) -> bool:
    places = [ROOT, *(ROOT / "clients").glob("*/src")]
    files = [place / (name if "/" in name else name.replace(".", "/")) for place in places]
    return any(file.exists() or file.with_suffix(".py").exists() for file in files) or name in LIBRARIES


@pytest.mark.parametrize("page", sorted({str(page.relative_to(ROOT)) for page in PAGES}))
def test_every_module_script_and_make_target_shown_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    made = set(re.findall(r' title="([^"]+)"', text))
    text = re.sub(r"^```python.*$", "", text, flags=re.MULTILINE)
    shown = {
        name.rstrip(".") for result in SCRIPT.findall(text) for name in result if name and not name.startswith("-")
    }
    assert [name for name in sorted(shown - MADE_UP - made) if not _is_there(name)] == []
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^    )make ([a-z-]+)", text, re.MULTILINE)) <= targets


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "results").glob("*.md")), ids=lambda page: page.stem)
def test_a_page_of_results_says_at_once_which_command_printed_it(page: Path) -> None:
    head = page.read_text()[:2_000]
    assert re.search(r"(python|lab|bench/|make lab)", head), head

"""README's own commands, and every task that the documentation and the command line's help create."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie_cli.main import app
from tests.contract.test_docs_commands import COMMAND, PAGES, ROOT, commands_of
from tests.e2e.real_platform import RealPlatform, real_platform

NOT_RUN = {
    "…": "an id that only the reader has",
    "dev_1": "an id that only the reader has",
    "--model": "a file of the reader's; the pages of docs/howto make theirs and are run",
    "--preset survey": "asks a question; docs/howto/presets/survey.md is run",
    "weak": "is shown to be refused; docs/howto/own-rule.md is run",
    "--from-task": "begins with a task of the reader's; tests/unit/coterie_cli has it",
    "clinic.": "code of the reader's",
}
"""What stands in commands that are not run here, and why."""
FENCE = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def examples() -> Iterator[list[str]]:
    """Words of every `coterie task create` that the documentation and the help show."""
    yield from (words for page in PAGES for words, whole in commands_of(page) if whole)
    epilog = COMMAND.commands["task"].commands["create"].epilog or ""
    for line in epilog.replace("\\n", "\n").splitlines():
        if line.startswith("coterie "):
            yield shlex.split(line)[1:]


CREATED = sorted(
    {
        shlex.join(words)
        for words in examples()
        if words[:2] == ["task", "create"] and not any(mark in " ".join(words) for mark in NOT_RUN)
    }
)


def test_the_documentation_creates_tasks() -> None:
    assert len(CREATED) >= 12


def test_every_task_shown_is_taken(shared_platform: RealPlatform) -> None:
    admin, wrong = shared_platform.admin, []
    for number, command in enumerate(CREATED):
        made = admin.create_key("publisher", f"reader-{number}")
        admin.deposit(made.principal.subject, 100_000_000, key="opening")
        variables = {"COTERIE_URL": shared_platform.processes.url, "COTERIE_API_KEY": made.api_key}
        done = CliRunner().invoke(app, shlex.split(command), env=variables)
        if done.exit_code:
            wrong.append(f"{command}: {done.output} {done.exception}")
    assert not wrong, "\n".join(wrong)


def test_the_commands_of_readme_run(tmp_path: Path) -> None:
    """From an owner to the results of five rounds, with the device it shows."""
    text = (ROOT / "README.md").read_text()
    script = "set -euo pipefail\n" + "\n".join(FENCE.findall(text))
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").write_text("")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with real_platform(tmp_path / "platform") as platform:
        variables = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COTERIE_URL": platform.processes.url,
            "COTERIE_API_KEY": platform.processes.admin_key(),
            "COLUMNS": "80",
        }
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("5 of 5 rounds delivered") == 3
    shown, result = versions(text), versions(done.stdout)
    assert result.keys() == shown.keys() == set(range(6))
    # Other processors round otherwise.
    assert all(result[version] == pytest.approx(shown[version], abs=3.0) for version in shown)


def versions(text: str) -> dict[int, float]:
    """Accuracy of each version in a table of results, in percent."""
    rows = re.findall(r"^(\d) +(?:–|3/3) +([\d.]+)%", text, re.MULTILINE)
    return {int(version): float(accuracy) for version, accuracy in rows}


def test_questions_that_page_of_rules_asks_have_answers_it_shows() -> None:
    text = (ROOT / "docs" / "howto" / "rules.md").read_text()
    asked = [block for block in FENCE.findall(text) if "what-if" in block]
    script = "\n".join(line for block in asked for line in block.splitlines() if not line.startswith("#"))
    shown = re.findall(r"^# (\{.*)$", "\n".join(asked), re.MULTILINE)
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=ROOT, env=variables, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    printed = "".join(done.stdout.split())
    assert len(shown) >= 2
    for answer in shown:  # a page may cut an answer short
        assert all("".join(piece.split()) in printed for piece in answer.removesuffix("]}").split("…"))


@pytest.mark.parametrize("command", ["keys", "task", "payments"])
def test_help_fits_in_eighty_columns(command: str) -> None:
    printed = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"}).output
    assert max(map(len, printed.splitlines())) <= 80

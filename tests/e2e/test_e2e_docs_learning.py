"""Commands of the pages on rules, versions, learners and other devices that no other test runs: each is run here."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from coterie_cli.demos import demos
from tests.contract.test_docs_commands import ROOT, commands_of
from tests.e2e.real_platform import RealPlatform

PAGES = (
    "docs/howto/rules.md",
    "docs/howto/presets/README.md",
    "docs/reference/protocol.md",
    "docs/howto/own-learner.md",
    "docs/howto/own-rule.md",
)
ELSEWHERE = {
    "task create": "tests/e2e/test_e2e_docs_tasks.py creates every task shown",
    "demo": "the last test here, by `make test-slow`",
    "conformance": "tests/e2e/test_e2e_other_devices.py, with two devices",
    "device run": "tests/e2e/test_e2e_docs_pages.py runs docs/howto/own-model.md, where it stands with its home",
    "fleet run": "tests/e2e/test_e2e_docs_pages.py",
    "task results mean": "tests/e2e/test_e2e_docs_pages.py",
    "privacy show": "the pages on privacy",
    "payments deposit": "tests/unit/coterie_cli/commands/test_cli_payments.py",
}
"""How commands begin that are run by other tests, and where."""
HERE = (
    "task replay", "task evaluate", "task contributions", "task figures sharp", "task results sharp",
    "task events sharp", "owners token Ada",
)  # fmt: skip
SHORTER = {"200": "3", "50": "4"}
"""Rounds of a task that is played here."""
FIGURES = "def function(tensors):\n    return {'numbers': float(sum(each.size for each in tensors.values()))}\n"


def shown(page: str, *beginning: str) -> list[str]:
    """The command on a page that begins with these words, with fewer rounds."""
    result = [words for words, _ in commands_of(ROOT / page) if words[: len(beginning)] == list(beginning)]
    assert result, f"{page} shows no coterie {shlex.join(beginning)}"
    return [_shorter(*pair) for pair in zip(["", *result[0][:-1]], result[0], strict=True)]


def _shorter(before: str, word: str) -> str:
    return SHORTER.get(word, word) if before == "--rounds" else word


@dataclass
class Reader:
    """A reader who types the commands of a page."""

    platform: RealPlatform
    folder: Path
    key: str

    def start(self, words: list[str], key: str = "") -> subprocess.Popen[str]:
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")]),
            "COTERIE_URL": self.platform.processes.url,
            "COTERIE_API_KEY": key or self.key,
            "COLUMNS": "200",
        }
        command = [sys.executable, "-m", "coterie_cli.main", *words]
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, cwd=self.folder, env=variables, text=True, **both)  # type: ignore[call-overload,no-any-return]

    def types(self, words: list[str]) -> str:
        return self.end(self.start(words), words)

    def end(self, running: subprocess.Popen[str], words: list[str]) -> str:
        output, _ = running.communicate(timeout=240)
        assert running.returncode == 0, f"coterie {shlex.join(words)}\n{output}"
        return output

    def fleet(self, task: str, devices: int) -> subprocess.Popen[str]:
        """Devices that do the task's work; an admin's command."""
        words = ["fleet", "run", "--task", task, "--devices", str(devices), "--owner", task, "--start"]
        return self.start(words, self.platform.processes.admin_key())


@pytest.fixture
def reader(shared_platform: RealPlatform, tmp_path: Path) -> Reader:
    made = shared_platform.admin.create_key("publisher", tmp_path.name)
    shared_platform.admin.deposit(made.principal.subject, 100_000_000, key="opening")
    return Reader(shared_platform, tmp_path, made.api_key)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_is_run_here_or_elsewhere(page: str) -> None:
    listed = {" ".join(words) for words, _ in commands_of(ROOT / page)}
    assert not {item for item in listed if not item.startswith((*HERE, *ELSEWHERE))}


def test_the_task_at_each_device_s_own_pace_is_replayed(reader: Reader) -> None:
    reader.types(shown("docs/howto/rules.md", "task", "create", "brisk"))
    assert "9 accepted" in reader.end(reader.fleet("brisk", 5), ["fleet"])
    output = reader.types(shown("docs/howto/rules.md", "task", "replay", "brisk"))
    assert output.count("identical") >= 3, output


def test_the_task_that_pays_by_contribution_is_valued_and_paid(reader: Reader) -> None:
    reader.types([*shown("docs/howto/rules.md", "task", "create", "fair"), "--rounds", "2"])
    devices = reader.fleet("fair", 5)
    output = reader.types(shown("docs/howto/rules.md", "task", "evaluate", "fair"))
    reader.end(devices, ["fleet"])
    assert "2 rounds valued" in output
    assert reader.types(shown("docs/howto/rules.md", "task", "contributions", "fair")).count("dev_") == 5


def test_versions_are_shown_measured_saved_and_gone_on_from(reader: Reader) -> None:
    page = "docs/howto/presets/README.md"
    (reader.folder / "package").mkdir()
    (reader.folder / "package" / "module.py").write_text(FIGURES)
    reader.types(shown(page, "task", "create", "sharp"))
    reader.end(reader.fleet("sharp", 6), ["fleet"])
    assert "accuracy" in reader.types(shown(page, "task", "results", "sharp"))
    assert "dev_" in reader.types(shown(page, "task", "figures", "sharp", "--round", "3"))
    assert "5 versions measured" in reader.types(shown(page, "task", "evaluate", "sharp"))
    assert (
        "numbers"
        in reader.types([*shown(page, "task", "results", "sharp"), "--csv", "FILE"])
        + (reader.folder / "FILE").read_text()
    )
    reader.types(shown(page, "task", "results", "sharp", "--save"))
    assert (reader.folder / "model.safetensors").stat().st_size > 1000
    reader.types(shown(page, "task", "create", "further"))
    assert "round.closed" in reader.types(shown(page, "task", "events", "sharp"))


def test_an_owner_s_token_is_made_as_the_protocol_says(reader: Reader) -> None:
    reader.platform.admin.create_owner("Ada")
    reader.key = reader.platform.processes.admin_key()
    assert reader.types(shown("docs/reference/protocol.md", "owners", "token")).strip()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(demos()))
def test_a_demo_plays_to_its_end(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "coterie_cli.main", "demo", name, "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert json.loads(done.stdout)["state"] == "finished"

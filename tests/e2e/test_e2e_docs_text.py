"""Commands in the running text of the documentation, and in blocks that no other test runs whole, are typed and work.

Where a page says `…`, NAME or `dev_…`, what a reader would put there is put there. A command that is named without its
arguments is asked for its help. Those that are not run here are listed with the place where they are.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie.agent.agent import Agent
from coterie.agent.home import DeviceHome
from coterie.agent.registration import register_device
from coterie.secure_sums.circle import fingerprint_words
from coterie_cli.main import app
from tests.contract.test_docs_commands import COMMAND, PAGES, ROOT, commands_of
from tests.e2e.device_group import NO_PAUSE, SAMPLES, Seeded, Shift
from tests.e2e.real_platform import RealPlatform, model, real_platform
from tests.e2e.test_e2e_docs_learning import PAGES as READ_ELSEWHERE
from tests.e2e.test_e2e_docs_pages import PAGES as RUN_WHOLE

ELSEWHERE = {
    r"up\b": "tests/e2e/test_e2e_up.py",
    r"demo( \w+| --garbage-device)?$": "tests/e2e/test_e2e_demos.py",
    r"conformance$": "tests/e2e/test_e2e_conformance.py",
    r"device run --home phone --source": "runs until it is stopped: tests/browser/test_browser_owner.py",
    r"device link ": "waits for a browser: tests/browser/test_browser_owner.py",
    r"cells train ": "a minute and more: tests/unit/topology has the training",
    r"task (start|plan) street": "needs six devices: tests/e2e/test_e2e_mesh.py, docs/howto/mesh-over-radio.md",
    r"task schedule kinds": "tests/e2e/test_e2e_multitask.py runs its page",
    r"task alike .": "tests/unit/coterie_cli/commands/test_cli_task_alike.py has records",
    r"task refit .": "tests/unit/coterie_cli/commands/test_cli_task_refit.py has runs to fit to",
    r"trust import facebook|trust explain facebook": "a data set of others: tests/unit/trust reads its format",
    r"trust (import|explain|show|history|losses|peers|relations|generate|graph .)": "tests/e2e/test_e2e_trust.py",
}
"""Beginnings of commands, and where they are run."""
TYPED = {
    "logs -f": "logs",  # follows until it is stopped: tests/unit/coterie_cli has it
    "cells put NAME --x … --y … --blocks …": "cells put north --x 10 --y 20 --blocks 2",
    "certs --out DIR --name trust=trust.internal …": "certs --out DIR --name trust=trust.internal",
    "device resume": "device resume --home phone",
    "circle remove dev_…": "circle remove dev_… --home phone",
    "circle set --no-clerk": "circle set --home phone --no-clerk",
    "privacy limit --unit device": "privacy limit --home phone --epsilon 20 --unit device",
    "task create … --preset market --escrow …": "task create prices --sample digits --preset market --escrow 5",
    "task create … --target-epsilon 4 --delta 1e-5": "task create own --sample digits --target-epsilon 4 --delta 1e-5",
    "task plan quiet": "task plan digits",
}
"""What a reader types where a page leaves the rest out."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of the documentation, in a folder with the files that its pages assume."""

    platform: RealPlatform
    folder: Path
    homes: Mapping[str, DeviceHome]
    task: str
    """One called digits, which has ended."""

    def type(self, words: list[str]) -> str:
        """Runs a command; what is wrong with it, empty when nothing is."""
        creates = words[:2] == ["task", "create"]
        variables = {
            "COTERIE_URL": self.platform.processes.url,
            "COTERIE_API_KEY": self._publisher() if creates else self.platform.processes.admin_key(),
        }
        if words[:2] == ["device", "run"]:  # it might wait for ever
            done = subprocess.run(
                [sys.executable, "-m", "coterie_cli.main", *words],
                cwd=self.folder, env=os.environ | variables, capture_output=True, text=True, timeout=90, check=False,
            )  # fmt: skip
            return done.stdout + done.stderr if done.returncode else ""
        done_here = CliRunner().invoke(app, words, input="y\n" * 3, env=variables)
        return f"{done_here.output} {done_here.exception}" if done_here.exit_code else ""

    def fill_in(self, words: list[str]) -> list[str]:
        """The words with ids, names and files that there are."""
        ada, ben = (home.identity() for home in (self.homes["phone"], self.homes["tablet"]))
        assert ada is not None
        assert ben is not None
        other = self.homes["phone" if "tablet" in words else "tablet"]
        stands_for = {
            r"coterie:circle\?.*": other.invitation(),
            r"babad gutih …": " ".join(fingerprint_words(other.keys().public().signing).split()),
            r"own_01je…": ben.owner_id,
            r"dev_(01jd)?…": ben.id,
            r"DIR": str(self.folder / "made"),
            r"FILE": str(self.folder / "next.key"),
            r"NAME": f"reader-{len(list(self.folder.iterdir()))}",
            r"KEY_ID": self._key() if "KEY_ID" in words else "",
            r"…": self.task,
        }
        if words[:2] != ["task", "create"]:
            stands_for["digits"] = self.task  # pages create several of that name
        owners = iter((ada.owner_id, ben.owner_id))
        filled = [next(owners) if re.fullmatch(r"own_(01jd)?…", word) else word for word in words]
        return [next((text for mark, text in stands_for.items() if re.fullmatch(mark, word)), word) for word in filled]

    def _publisher(self) -> str:
        """Key of a new publisher with money, whose tasks may have any name."""
        made = self.platform.admin.create_key("publisher", f"publisher {secrets.token_hex(4)}")
        self.platform.admin.deposit(made.principal.subject, 1_000_000_000, key="opening")
        return str(made.api_key)

    def _key(self) -> str:
        return str(self.platform.admin.create_key("publisher", f"passing {secrets.token_hex(4)}").id)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A platform with two owners' devices, a task that has ended and files to name."""
    folder = tmp_path_factory.mktemp("reader")
    with real_platform(folder) as platform:
        (folder / ".coterie").symlink_to(platform.processes.data)
        (folder / "model.safetensors").write_bytes(model())
        homes = {}
        for owner, names in {"Ada": ("phone", "kitchen"), "Ben": ("tablet",)}.items():
            token = platform.admin.issue_token(platform.admin.create_owner(owner).id, uses=len(names)).token
            for name in names:
                homes[name] = DeviceHome(folder / name)
                register_device(homes[name], platform.processes.url, token, name=name)
        agents = [
            Agent(
                homes[name].folder,
                samples=SAMPLES,
                cache=platform.cache,
                poll_seconds=1.0,
                choose=lambda work: Seeded("any", NO_PAUSE),
            )
            for name in ("phone", "tablet")
        ]
        task = platform.create_task("digits", auto_start=True, quorum=1.0)
        Shift(platform, agents, task).wait()
        yield Reader(platform, folder, homes, task)


def pages() -> list[Path]:
    """Pages that are read here: not those that another test reads, nor the changelog, which names commands alone."""
    left = {*(ROOT / page for page in READ_ELSEWHERE), ROOT / "CHANGELOG.md"}
    return sorted({*PAGES} - left)


def shown(page: Path) -> list[list[str]]:
    """Commands of a page that are to be run here: all but the blocks of pages that are run whole."""
    name = str(page.relative_to(ROOT))
    whole_elsewhere = name == "README.md" or name.removeprefix("docs/") in RUN_WHOLE
    blocks = {shlex.join(words) for words, whole in commands_of(page) if whole} if whole_elsewhere else set()
    return [words for words, whole in commands_of(page) if not (whole and shlex.join(words) in blocks)]


def place_of(command: str) -> str:
    """Where a command is run that is not run here; empty when it is."""
    return next((place for start, place in ELSEWHERE.items() if re.match(start, command)), "")


def is_named_only(words: list[str]) -> bool:
    """Whether a command is named without what it needs: then its help is what a reader asks for."""
    command, rest = COMMAND, list(words)
    while rest and hasattr(command, "commands") and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
    return not rest and bool(words)


def test_every_command_in_running_text_does_what_the_page_says(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(reader.folder)
    done, wrong = set(), []
    for page in pages():
        for words in shown(page):
            command = " ".join(words)
            if command in done or place_of(command):
                continue
            done.add(command)
            typed = shlex.split(TYPED[command]) if command in TYPED else words
            ready = [*typed, "--help"] if is_named_only(typed) else reader.fill_in(typed)
            if why := reader.type(ready):
                wrong.append(f"{page.relative_to(ROOT)}: coterie {shlex.join(ready)}\n{why}")
    assert not wrong, "\n".join(wrong)
    assert len(done) > 50


def test_what_is_said_to_be_run_elsewhere_stands_on_a_page() -> None:
    commands = {" ".join(words) for page in pages() for words in shown(page)}
    assert [start for start in ELSEWHERE if not any(re.match(start, command) for command in commands)] == []
    assert [typed for typed in TYPED if typed not in commands] == []
    named = {item for place in ELSEWHERE.values() for item in re.findall(r"(?:tests|docs)/[\w/.-]+", place)}
    assert [item for item in named if not (ROOT / item.rstrip(".:")).exists()] == []

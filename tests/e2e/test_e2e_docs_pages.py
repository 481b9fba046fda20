"""The tutorial and the how-to pages: every command on them runs, in order, as a reader would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.real_platform import ROOT, RealPlatform

FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {
    "tutorials/first-task.md": ("10 of 10 rounds delivered", "digits", "∞"),
    "howto/own-model.md": ("5 of 5 rounds delivered", "circle"),
    "howto/own-learner.md": ("task finished: 12 accepted", "mean"),
    "howto/own-rule.md": ("[1.05]", "sturdy"),
    "howto/private-task.md": ("3 of 3 rounds delivered", "left out", "replaced"),
    "howto/sell-privacy.md": ("2 of 2 rounds delivered", "meter", ": sound"),
    "howto/mesh-over-radio.md": ("dp_devices", "pseudo_training_time"),
}
"""What a reader of the page must see in the end."""
READ_ELSEWHERE = {f"howto/{page}.md" for page in ("rules", "upgrades", "operations", "kubernetes")}
"""Pages whose commands `test_e2e_docs_text.py` and `test_e2e_docs_learning.py` run one by one."""


def script_of(page: str, folder: Path) -> str:
    """The page's commands; its files are written to `folder`."""
    commands = ["set -euo pipefail"]
    for language, title, text in FENCE.findall((ROOT / "docs" / page).read_text()):
        if title:
            (folder / title).write_text(text)
        elif language == "sh":
            commands.append(text)
    return "\n".join(commands)


def test_every_page_that_shows_commands_is_run() -> None:
    pages = {f"{path.parent.name}/{path.name}" for path in (ROOT / "docs").glob("[th][uo][tw]*/*.md")}
    assert pages - READ_ELSEWHERE == PAGES.keys()


@pytest.mark.parametrize("page", PAGES)
def test_the_page_s_commands_run(page: str, shared_platform: RealPlatform, tmp_path: Path) -> None:
    variables = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "COTERIE_URL": shared_platform.processes.url,
        "COTERIE_API_KEY": shared_platform.processes.admin_key(),
        "COLUMNS": "200",
    }
    done = subprocess.run(
        ["bash", "-c", script_of(page, tmp_path)],
        cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    output = done.stdout
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    missing = [text for text in PAGES[page] if text not in output]
    assert not missing, output

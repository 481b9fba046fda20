"""The README says what is so."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_device_shown_is_the_example_that_runs_and_is_short() -> None:
    shown = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert shown is not None
    assert shown[1] == (ROOT / "examples/device.py").read_text()
    assert len(shown[1].splitlines()) <= 25


def test_every_make_command_it_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^    )make ([a-z-]+)", README, re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named <= targets


def test_links_in_the_documentation_lead_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "services").rglob("README.md")]:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text()):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} → {target}")
    assert not broken

"""`coterie demo`: what README begins with, and the presets' own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coterie_cli.demos import demos
from tests.e2e.real_platform import ROOT

OTHERS = sorted(demos().keys() - {"fedavg"})


def play(folder: Path, *arguments: str) -> dict[str, Any]:
    """The document that a demo prints in the end."""
    done = subprocess.run(
        [sys.executable, "-m", "coterie_cli.main", "demo", *arguments, "--json"],
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_the_first_command_of_readme_lets_twelve_devices_learn(tmp_path: Path) -> None:
    """With fewer rounds than `make demo` has, for time."""
    assert "\t$(BIN)/coterie demo\n" in (ROOT / "Makefile").read_text()
    result = play(tmp_path, "--rounds", "3")
    assert (result["state"], len(result["devices"])) == ("finished", 12)
    accuracy = [item["accuracy"] for item in result["rounds"]]
    assert accuracy[-1] > max(0.4, accuracy[0])


@pytest.mark.slow
@pytest.mark.parametrize("which", OTHERS)
def test_the_demo_of_a_preset_ends_well(which: str, tmp_path: Path) -> None:
    assert play(tmp_path, which)["state"] == "finished"


@pytest.mark.slow
def test_a_device_that_delivers_garbage_loses_trust(tmp_path: Path) -> None:
    result = play(tmp_path, "--garbage-device")
    *_, last = result["trust"]
    honest, garbage = result["devices"][0]["name"], result["devices"][-1]["name"]
    assert last[garbage] < last[honest]

"""Every example runs as a reader would run it, on data that is installed or generated, and learns something."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.real_platform import ROOT, RealPlatform

EXAMPLES = {
    "image_cnn.py": ("accuracy", 0.85),
    "lora_text.py": ("accuracy", 0.8),
    "regression.py": ("r2", 0.3),
    "scikit_learn.py": ("accuracy", 0.9),
    "online_stream.py": ("accuracy", 0.4),
}
"""The figure that each must reach in its last round."""
NO_TASKS = {"play.py", "device.py"}
"""What the others use, and the tutorial's device, which its own test runs."""


def test_every_example_is_run() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == EXAMPLES.keys() | NO_TASKS


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_learns(name: str, shared_platform: RealPlatform, tmp_path: Path) -> None:
    variables = {
        **os.environ,
        "COTERIE_URL": shared_platform.processes.url,
        "COTERIE_API_KEY": shared_platform.processes.admin_key(),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", str(ROOT / "examples" / name)],
        cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "task finished" in done.stdout, f"{done.stdout}\n{done.stderr}"
    assert "could not measure" not in done.stderr, done.stderr  # the last version is measured as well
    figure, least = EXAMPLES[name]
    result = [float(value) for value in re.findall(rf"\b{figure} (-?[\d.e+-]+)", done.stdout)]
    assert result[-1] >= least, done.stdout
    if name == "lora_text.py":
        kilobytes, whole = map(float, re.findall(r"([\d.]+) kB", done.stdout)[:2])
        assert kilobytes < 30 < 400 < whole
    if name == "online_stream.py":
        assert "regret" in done.stdout

"""The plug-in of `examples/plugin`, installed in a separate folder, runs a task over the real services."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from coterie_cli.processes import die_with_parent
from tests.e2e.real_platform import ROOT, RealPlatform, model, real_platform

PLUGIN = ROOT / "examples" / "plugin"
STEPS = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "e": 9.0, "f": 5.0}
BROKEN = "import does_not_exist\n"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plug-in, and with a plug-in that cannot be imported."""
    source, target = tmp_path_factory.mktemp("source") / "plugin", tmp_path_factory.mktemp("packages")
    shutil.copytree(PLUGIN, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", str(target), str(source)], check=True)
    (target / "broken_plugin.py").write_text(BROKEN)
    information = target / "broken-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 0.1\n")
    points = "[coterie.strategies]\nspiral = broken_plugin:Spiral\n[coterie.rules]\nspiral = broken_plugin:SPIRAL\n"
    (information / "entry_points.txt").write_text(points)
    return target


def test_plugin_fits_in_120_lines() -> None:
    assert sum(len(file.read_text().splitlines()) for file in PLUGIN.rglob("*.py")) <= 120


def test_task_runs_with_topology_and_rule_of_plugin(packages: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", str(ROOT))])
    with real_platform(tmp_path, {"PYTHONPATH": path}) as platform:
        homes = platform.register(*STEPS)
        digest = platform.admin.upload_model(model())
        task = platform.admin.create_task(
            name="shifts", preset="shifts", rule="midrange", parameters={"topology": {"shifts": 2}, "rule": {"f": 1}},
            model_digests=[digest],
            rounds=2, min_devices=3, quorum=1.0, round_seconds=60.0, seed=7, auto_start=False,
        ).id  # fmt: skip
        devices = [device(path, homes[name].folder, task, step) for name, step in STEPS.items()]
        platform.wait_until(lambda: len(list(platform.admin.enrolments(task))) == len(STEPS))
        platform.admin.start_task(task)
        try:
            final = load(platform.final_model(task))
        finally:
            for process in devices:
                process.terminate()
                process.wait(60)
        by_id = {}
        for name, home in homes.items():
            identity = home.identity()
            assert identity is not None
            by_id[identity.id] = STEPS[name]
        rounds = list(platform.admin.rounds(task))
        refusal = unknown_strategy(platform, digest)
    # Trimmed by one, the midrange of three values is the middle one.
    steps = [by_id[name] for name in sorted(by_id)]
    expected = sum(float(np.median(steps[number % 2 :: 2])) for number in (1, 2))
    assert np.allclose(final["weight"], expected, atol=1e-4)
    assert [(r.state, r.delivered) for r in rounds] == [("done", 3), ("done", 3)]
    assert "plug-in 'spiral' of broken 0.1 was left out" in refusal
    assert "does_not_exist" in refusal


def device(path: str, home: Path, task: str, step: float) -> subprocess.Popen[bytes]:
    """Start a device process that finds the plug-in."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.plugin_device", str(home), task, str(step)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        preexec_fn=die_with_parent,
    )


def unknown_strategy(platform: RealPlatform, digest: str) -> str:
    """The error of a task with the topology of the broken plug-in."""
    with pytest.raises(Exception, match="no topology 'spiral'") as refused:
        platform.admin.create_task(
            name="s", topology="spiral", privacy="none", incentive="none", model_digests=[digest], rounds=1
        )
    return str(refused.value)

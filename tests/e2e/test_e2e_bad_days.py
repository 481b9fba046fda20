"""Bad days: processes killed in mid-round, too few devices, a full disk. The task ends as if nothing had been."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from coterie.client import Platform
from coterie.errors import Unreachable
from coterie.protocol.transport import Backoff
from tests.e2e.device_group import DeviceGroup, Pause
from tests.e2e.real_platform import RealPlatform, real_platform


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPlatform]:
    with real_platform(tmp_path_factory.mktemp("bad-days")) as result:
        yield result


@pytest.fixture(scope="module")
def device_group(platform: RealPlatform) -> DeviceGroup:
    return DeviceGroup(platform)


@pytest.fixture(scope="module")
def undisturbed(device_group: DeviceGroup) -> bytes:
    """The final model when nothing goes wrong."""
    task = device_group.publish()
    device_group.start(task).wait()
    return device_group.platform.final_model(task)


def check_history(platform: RealPlatform, task_id: str) -> None:
    """The round number never goes back, and every round closed with all devices."""
    numbers = [event.round for event in platform.admin.events(task_id) if event.kind.startswith("round.")]
    assert numbers == sorted(numbers)
    assert [(r.number, r.state, r.delivered) for r in platform.admin.rounds(task_id)] == [
        (number, "done", 3) for number in (1, 2, 3)
    ]


@pytest.mark.parametrize("service", ["aggregation", "gateway", "trust", "topology", "pricing"])
def test_a_service_killed_in_mid_round_changes_nothing(
    platform: RealPlatform, device_group: DeviceGroup, undisturbed: bytes, service: str
) -> None:
    task, pause = device_group.publish(), Pause("eve", 2)
    shift = device_group.start(task, pause=pause)
    shift.until(pause)
    platform.kill(service)
    pause.go_on.set()
    platform.restart(service)
    shift.wait()
    assert platform.final_model(task) == undisturbed
    check_history(platform, task)


def test_a_device_killed_in_mid_round_changes_nothing(
    platform: RealPlatform, device_group: DeviceGroup, undisturbed: bytes
) -> None:
    task = device_group.publish()
    shift = device_group.start(task, ("ada", "bob"))
    platform.run_device("eve", task, pause=60.0)
    platform.wait_until(lambda: platform.admin.task(task).round == 1)
    platform.kill_device("eve")
    platform.run_device("eve", task, pause=0.2)
    shift.wait()
    assert platform.devices.pop("eve").wait(60) == 0
    assert platform.final_model(task) == undisturbed
    check_history(platform, task)


@pytest.mark.smoke
def test_every_service_killed_at_once_changes_nothing(
    platform: RealPlatform, device_group: DeviceGroup, undisturbed: bytes
) -> None:
    task, pause = device_group.publish(), Pause("ada", 2)
    shift = device_group.start(task, pause=pause)
    shift.until(pause)
    for service in ("aggregation", "gateway", "trust", "topology", "pricing"):
        platform.kill(service)
    pause.go_on.set()
    for service in ("trust", "topology", "pricing", "aggregation", "gateway"):
        platform.processes.start_one(service)
    platform.processes.wait_until_healthy(120.0)
    shift.wait()
    assert platform.final_model(task) == undisturbed
    check_history(platform, task)


def test_too_few_devices_reopen_round_and_then_fail_task_with_reason(
    platform: RealPlatform, device_group: DeviceGroup
) -> None:
    task, pause = device_group.publish(round_seconds=1.0, max_attempts=2), Pause("eve", 1)
    shift = device_group.start(task, pause=pause)
    ended = platform.admin.wait_for_end(task)
    pause.go_on.set()
    shift.wait()
    assert ended.state == "failed"
    assert "quorum" in ended.reason
    [only] = platform.admin.rounds(task)
    assert (only.attempt, only.state, only.delivered) == (2, "failed", 2)


def test_a_full_disk_is_answered_and_leaves_nothing_behind(platform: RealPlatform, tmp_path: Path) -> None:
    """The gateway may write files of 64 KiB at most, as if the disk had no more room."""
    gateway = platform.processes.running["gateway"].pid
    large = save({"weight": np.zeros(1 << 18, np.float32)})
    stored = set(_blobs(platform))
    before = resource.prlimit(gateway, resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
    quick = Backoff(patience_seconds=1.0)
    with Platform(platform.processes.url, platform.processes.admin_key(), backoff=quick) as admin:
        try:
            with pytest.raises(Unreachable, match="blob store"):
                admin.upload_model(large)
        finally:
            resource.prlimit(gateway, resource.RLIMIT_FSIZE, before)
        assert set(_blobs(platform)) == stored
        assert admin.upload_model(large)
    assert len(set(_blobs(platform)) - stored) == 1


def _blobs(platform: RealPlatform) -> list[Path]:
    return [path for path in (platform.processes.data / "blobs").rglob("*") if path.is_file()]

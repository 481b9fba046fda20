"""Attacks from the same machine: another user who reads, or prepared, the folder with keys and databases."""

import asyncio
import os
import stat
import sys
from pathlib import Path

import pytest

from services.kit.runtime.data_dir import make_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("before", [0o755, 0o750, 0o711, 0o777])
def test_a_folder_open_to_others_is_closed_to_them(tmp_path: Path, before: int) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    if not before & 0o022:
        (folder / "trust.db").touch()
    folder.chmod(before)
    make_private(folder)
    assert mode(folder) == 0o700
    make_private(folder)  # and stays so
    make_private(tmp_path / "new" / "deep")
    assert mode(tmp_path / "new" / "deep") == 0o700


@pytest.mark.parametrize("before", [0o777, 0o775, 0o1777, 0o702])
def test_a_folder_in_which_others_may_have_put_something_is_refused(tmp_path: Path, before: int) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "admin.key").write_text("planted")
    folder.chmod(before)
    with pytest.raises(ValueError, match=r"other users can write .* chmod 700"):
        make_private(folder)
    assert mode(folder) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_another_user_s_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, -1)
    with pytest.raises(ValueError, match="belongs to another user"):
        make_private(folder)


def variables(folder: Path) -> dict[str, str]:
    return os.environ | {"COTERIE_DATA_DIR": str(folder)}


async def test_a_service_refuses_such_a_folder_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "admin.key").write_text("planted")
    folder.chmod(0o777)
    for name in ("trust", "gateway"):
        service = await asyncio.create_subprocess_exec(
            sys.executable, "-m", f"services.{name}", env=variables(folder), stderr=asyncio.subprocess.PIPE
        )
        _, output = await asyncio.wait_for(service.communicate(), 60)
        assert service.returncode == 1
        assert b"other users can write" in output
        assert b"Traceback" not in output


async def test_everything_a_service_makes_is_its_user_s_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    service = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.trust", env=variables(folder), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(60):
            while not (folder / "admin.key").exists():
                assert service.returncode is None
                await asyncio.sleep(0.05)
    finally:
        service.terminate()
        await service.wait()
    assert mode(folder) == 0o700
    made = list(folder.rglob("*"))
    assert {path.name for path in made} >= {"admin.key", "trust.db"}
    assert all(mode(path) & 0o077 == 0 for path in made)

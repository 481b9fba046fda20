"""One version everywhere; the commit from the image, the archive or the checkout."""

from __future__ import annotations

import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie import version
from coterie_cli.main import app

ROOT = Path(__file__).parents[3]
PACKAGES = (".", "clients/coterie", "clients/cli", "clients/lab")


@pytest.fixture(autouse=True)
def _fresh_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COTERIE_COMMIT", raising=False)
    version.commit.cache_clear()


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_this_version_and_licence(package: str) -> None:
    project = tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"]
    assert (project["version"], project["license"]) == (version.VERSION, "Apache-2.0")
    assert "Apache License" in (ROOT / package / "LICENSE").read_text()


def test_changelog_and_citation_know_this_version() -> None:
    assert f"\n## [{version.VERSION}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {version.VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"image: coterie:{version.VERSION}" in (ROOT / "docker-compose.yml").read_text()


def test_a_checkout_tells_its_commit() -> None:
    assert version.commit() == git("rev-parse", "--short=7", "HEAD").strip()


def test_image_reads_commit_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_COMMIT", "abc1234")
    assert version.full_version() == f"{version.VERSION} (commit abc1234)"


def test_an_archive_of_the_source_carries_its_commit(tmp_path: Path) -> None:
    git("archive", "-o", str(tmp_path / "source.tar"), "HEAD", "clients/coterie/src/coterie/commit.txt")
    with tarfile.open(tmp_path / "source.tar") as archive:
        inside = archive.extractfile("clients/coterie/src/coterie/commit.txt")
        assert inside is not None
        written = inside.read().decode().strip()
    assert git("rev-parse", "HEAD").startswith(written)


def test_installed_inside_another_repository_it_claims_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "_ROOT", tmp_path)
    assert version.commit() == version.UNKNOWN


def test_the_command_tells_version_and_commit() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"coterie {version.full_version()}\n")

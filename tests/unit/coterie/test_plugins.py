"""Plug-ins: a bad one is left out with its distribution's name, and all others keep working."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from coterie.plugins import Registry, require_members

BUILTIN = {"path": "pathlib:Path"}


def has_parts(item: object) -> object:
    require_members(item, "parts")
    return item


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def install(packages: Path, distribution: str, *points: str, group: str = "coterie.tests") -> None:
    folder = packages / f"{distribution}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("\n".join([f"[{group}]", *points]))


def registry() -> Registry[object]:
    return Registry("coterie.tests", BUILTIN, has_parts)


def test_plugin_is_found_beside_builtin(packages: Path) -> None:
    install(packages, "good", "pure = pathlib:PurePath")
    assert list(registry().load_all()) == ["path", "pure"]


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        ("bad = no_such_module:Thing", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("bad = pathlib:Thing", "has no attribute 'Thing'"),
        ("bad = fractions:Fraction", "lacks parts"),
        ("path = pathlib:PurePath", "is the name of a built-in of the group coterie.tests"),
    ],
)
def test_bad_plugin_is_left_out_with_its_distribution(
    packages: Path, caplog: pytest.LogCaptureFixture, point: str, reason: str
) -> None:
    install(packages, "culprit", point)
    result = registry()
    with caplog.at_level(logging.ERROR):
        assert result.load_all() == {"path": Path}
    (failure,) = result.failures.values()
    assert failure.distribution == "culprit 1.0"
    assert reason in str(failure)
    assert str(failure) in caplog.text
    assert str(failure) in result.advice


def test_second_plugin_of_a_name_is_left_out(packages: Path) -> None:
    install(packages, "first", "pure = pathlib:PurePath")
    install(packages, "second", "pure = pathlib:PurePosixPath")
    result = registry()
    assert result.get("pure") is __import__("pathlib").PurePath
    assert "first 1.0 also registers 'pure'" in result.advice


def test_rejected_plugin_is_gone(packages: Path) -> None:
    install(packages, "good", "pure = pathlib:PurePath")
    result = registry()
    result.load_all()
    result.reject("pure", "its preset exists already")
    assert result.get("pure") is None
    with pytest.raises(ValueError, match="built-in 'path'"):
        result.reject("path", "no reason")

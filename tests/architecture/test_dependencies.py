"""What each distribution declares is what it imports."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from typing import Any

import pytest

from tests.architecture.test_imports import ROOT, files, imports_of

FOLDERS = {
    "coterie": "clients/coterie",
    "coterie-cli": "clients/cli",
    "coterie-platform": ".",
    "coterie-lab": "clients/lab",
}
PACKAGES = {
    "coterie": "coterie",
    "coterie_cli": "coterie-cli",
    "coterie_lab": "coterie-lab",
    "services": "coterie-platform",
    "coterie_api": "coterie-platform",
    "google": "protobuf",
}
"""Our own packages and the distributions they are in; several distributions have a part of "google"."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def project(name: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / FOLDERS[name] / "pyproject.toml").read_text())["project"]
    return table


def declared(name: str) -> dict[str, set[str]]:
    """Distributions a project asks for, of its extras too, each with the extras it wants of it."""
    table = project(name)
    options = table.get("optional-dependencies", {}) if name != "coterie-platform" else {}
    wanted = [*table["dependencies"], *(item for option in options.values() for item in option)]
    parts = [re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", requirement) for requirement in wanted]
    return {normal(part[1]): set((part[2] or "").split(",")) - {""} for part in parts if part}


def brought(name: str) -> set[str]:
    """Distributions a project may import: what it declares, and what the extras of our own bring it."""
    result = declared(name)
    extras = {
        normal(re.split(r"[\[=]", item)[0])
        for ours in result.keys() & FOLDERS.keys()
        for extra in result[ours]
        for item in project(ours)["optional-dependencies"][extra]
    }
    return result.keys() | extras


def imported(name: str, *folders: str) -> set[str]:
    """Distributions that the files of some folders import, at their top or inside functions."""
    tops = {item.partition(".")[0] for folder in folders for path in files(folder) for item in imports_of(path)}
    distributions, wanted = packages_distributions(), brought(name)
    homes: set[str] = set()
    for top in tops - set(sys.stdlib_module_names):
        # `google` and `opentelemetry` are shared by several: those it asks for, if it asks for any.
        sharing = {PACKAGES[top]} if top in PACKAGES else {normal(item) for item in distributions[top]}
        homes |= sharing & wanted or {min(sharing)}
    return homes - {name}


@pytest.mark.parametrize("name", ["coterie", "coterie-cli", "coterie-lab"])
def test_a_client_declares_what_it_imports_and_nothing_else(name: str) -> None:
    result = imported(name, f"{FOLDERS[name]}/src")
    assert result - brought(name) == set(), "imported, not declared"
    assert declared(name).keys() - result == set(), "declared, not imported"


def test_the_platform_declares_what_it_imports() -> None:
    """It declares more: database drivers, which a URL names, and what the web server loads by name."""
    result = imported("coterie-platform", "services", "protos/coterie_api")
    assert result - brought("coterie-platform") == set()

"""The same rooms in every service, of the same kind, and which room may know which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.test_imports import ROOT, SERVICES, files, imports_of

BEHIND_GRPC = ("trust", "topology", "pricing", "aggregation")
FILES = {"README.md", "__init__.py", "__main__.py", "app.py", "errors.py", "settings.py", "tables.py"}
ROOMS = {"servicer", "usecases", "domain", "store", "migrations", "whatif", "commands"}
NEEDED = {"README.md", "__init__.py", "__main__.py", "app.py", "errors.py", "tables.py"}
NEEDED_ROOMS = {"servicer", "usecases", "domain", "store", "migrations"}
OWN_ROOMS = {
    "trust": {"readers"},
    "topology": {"planners"},
    "pricing": set[str](),
    "aggregation": {"rounds", "secure_sums", "strategies"},
    # The edge owns no tables: no domain and no store, and routes in the place of a servicer.
    "gateway": {"routes", "schemas", "access", "wire"},
}
# Which rooms a room may import from its own service; rooms not named here may import what they like.
MAY_KNOW = {
    "domain": {"domain", "errors"},
    "store": {"store", "domain", "tables", "errors"},
    "tables": set[str](),
    "errors": set[str](),
    "settings": {"domain"},
}


def entries(service: str) -> tuple[set[str], set[str]]:
    """Files and folders of a service; a folder that a rename left with bytecode alone does not count."""
    entries = [path for path in (ROOT / "services" / service).iterdir() if path.name != "__pycache__"]
    folders = {path.name for path in entries if path.is_dir() and any(path.rglob("*.py"))}
    return {path.name for path in entries if path.is_file()}, folders


def test_every_folder_of_services_is_a_service_the_kit_or_the_console() -> None:
    result = {path.name for path in (ROOT / "services").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert result - {"kit", "console"} == set(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_no_modules_beside_its_rooms(service: str) -> None:
    modules, rooms = entries(service)
    assert modules <= FILES, f"give these a room: {sorted(modules - FILES)}"
    assert rooms <= ROOMS | OWN_ROOMS[service], f"no such room: {sorted(rooms - ROOMS - OWN_ROOMS[service])}"


@pytest.mark.parametrize("service", BEHIND_GRPC)
def test_the_rooms_of_a_service_behind_grpc_are_complete(service: str) -> None:
    modules, rooms = entries(service)
    assert not NEEDED - modules
    assert not NEEDED_ROOMS - rooms
    assert (ROOT / "services" / service / "domain" / "records.py").exists()


@pytest.mark.parametrize("service", SERVICES)
def test_rooms_know_only_the_rooms_below_them(service: str) -> None:
    """The arrows: servicer → usecases → store → domain. Only `app` and `__main__` know the servicer."""
    for path in files(f"services/{service}"):
        room = _room(path, service)
        for name in imports_of(path):
            if not name.startswith(f"services.{service}."):
                continue
            known = name.split(".")[2]
            assert known in MAY_KNOW.get(room, {known}), f"{path}: {room} imports {name}"
            if known in ("servicer", "routes"):
                assert room in (known, "app", "__main__"), f"{path}: {room} imports {name}"
            assert known != "app" or room == "__main__", f"{path}: {room} imports {name}"


@pytest.mark.parametrize("service", BEHIND_GRPC)
def test_sql_stays_in_the_store(service: str) -> None:
    for path in files(f"services/{service}"):
        if _room(path, service) not in ("store", "tables", "migrations"):
            assert not [name for name in imports_of(path) if name.startswith("sqlalchemy")], path


def test_only_the_kit_knows_the_type_of_a_transaction() -> None:
    """All other code uses `tx: Tx`."""
    for path in files("services"):
        if "kit" not in path.parts and "migrations" not in path.parts:
            assert not [name for name in imports_of(path) if name.endswith("AsyncConnection")], path


@pytest.mark.parametrize("service", ["trust", "topology", "pricing", "gateway"])
def test_one_name_means_one_thing_in_a_service(service: str) -> None:
    """What-if questions are all called `Input`; every other class of a service has a unique name."""
    seen: dict[str, Path] = {}
    for path in files(f"services/{service}"):
        if _room(path, service) in ("whatif", "migrations"):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                assert node.name not in seen, f"{node.name} is in {seen[node.name]} and in {path}"
                seen[node.name] = path


def test_unit_tests_stand_in_the_rooms_of_what_they_test() -> None:
    for service in SERVICES:
        folder = ROOT / "tests" / "unit" / service
        for room in folder.iterdir():
            if any(room.rglob("*.py")):
                assert (ROOT / "services" / service / room.name).is_dir(), f"{room} tests a room there is not"


def _room(path: Path, service: str) -> str:
    """The first step below the service: a room, or the name of a file."""
    return path.relative_to(ROOT / "services" / service).parts[0].removesuffix(".py")

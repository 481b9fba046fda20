"""The documentation's reference pages hold every route, command and message there is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import typer

from coterie.parameters.registry import places
from coterie_cli.main import app
from services.gateway.app import build
from services.gateway.settings import GatewaySettings

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    place = importlib.util.spec_from_file_location("reference", ROOT / "deploy" / "docs" / "reference.py")
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_every_route_is_there(reference: ModuleType) -> None:
    page = "\n".join(reference.rest())
    for path, operations in build(GatewaySettings()).openapi()["paths"].items():
        for method in operations:
            assert f"### `{method.upper()} {path}`" in page


def test_every_command_is_there(reference: ModuleType) -> None:
    page = "\n".join(reference.commands())
    for group in typer.main.get_command(app).commands.values():  # type: ignore[attr-defined]
        for command in getattr(group, "commands", {}).values():
            assert f"`coterie {group.name} {command.name}`" in page
    assert "[bold]" not in page


def test_every_message_is_there(reference: ModuleType) -> None:
    page = "\n".join(reference.messages(ROOT))
    for path in (ROOT / "protos").rglob("*.proto"):
        for line in path.read_text().splitlines():
            if line.startswith("message "):
                assert f"### {line.split()[1]}\n" in page


def test_every_parameter_is_there(reference: ModuleType) -> None:
    page = "\n".join(reference.parameters())
    for place in places():
        assert f"`{place.group.section}.{place.parameter.name}`" in page

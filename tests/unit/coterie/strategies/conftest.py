"""Devices of a mesh."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.coterie.strategies.mesh_devices import Device, PostOffice


@pytest.fixture
def office(tmp_path: Path) -> PostOffice:
    return PostOffice(tmp_path)


@pytest.fixture
def ada(office: PostOffice, tmp_path: Path) -> Device:
    return Device(office, tmp_path, "ada")


@pytest.fixture
def bobby(office: PostOffice, tmp_path: Path) -> Device:
    return Device(office, tmp_path, "bobby")

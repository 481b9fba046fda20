"""docker-compose.yml, as an operator meets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

DOCUMENT: dict[str, Any] = yaml.safe_load((Path(__file__).parents[3] / "docker-compose.yml").read_text())


def test_only_one_service_builds_the_image() -> None:
    """Compose labels an image with the service it was built for: of two, the first is out of date."""
    ours = {name: service for name, service in DOCUMENT["services"].items() if service["image"].startswith("coterie:")}
    assert [name for name, service in ours.items() if "build" in service] == ["certificates"]
    assert {service.get("pull_policy") for name, service in ours.items() if name != "certificates"} == {"never"}


def test_station_of_profile_cells_reaches_planner_and_nothing_else() -> None:
    """No port, no database, no blobs, and no certificate but its own."""
    station = DOCUMENT["services"]["station"]
    assert station["profiles"] == ["cells"]
    assert station["command"] == ["python", "-m", "services.topology", "station"]
    assert station["networks"] == ["inside"]
    assert "ports" not in station
    assert station["environment"] == {
        "COTERIE_TOPOLOGY_ADDRESS": "topology:50052",
        "COTERIE_TLS_DIR": "/certs/station",
    }
    assert station["volumes"] == ["stations:/data", "certs-station:/certs/station:ro"]

"""Attacks from within a container of the deployment that was broken into: on its files, the machine, and the others."""

from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # one file is read here: no reason for a package of stubs

DOCUMENT: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = DOCUMENT["services"]
BEHIND = ("trust", "topology", "pricing", "aggregation")


@pytest.mark.parametrize("name", SERVICES)
def test_container_cannot_change_its_files_gain_privileges_or_take_machine(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["cap_drop"] == ["ALL"]
    assert service["mem_limit"]
    assert service["pids_limit"] <= 512
    assert not service.get("privileged")
    assert "cap_add" not in service or name == "postgres"
    assert not any("docker.sock" in str(volume) for volume in service.get("volumes", []))


def test_only_services_with_tables_reach_the_database() -> None:
    on_data = {name for name, service in SERVICES.items() if "data" in service.get("networks", [])}
    assert on_data == {"postgres", "database", *BEHIND}
    assert SERVICES["postgres"]["networks"] == ["data"]


def test_devices_and_people_reach_the_proxy_and_the_console_alone() -> None:
    on_front = {name for name, service in SERVICES.items() if "front" in service.get("networks", [])}
    assert on_front == {"proxy", "console", "task", "device-1", "device-2", "device-3"}
    published = {name for name, service in SERVICES.items() if service.get("ports")}
    assert published == {"proxy", "console"}
    for name in published:
        assert all(port.startswith("127.0.0.1:") for port in SERVICES[name]["ports"])


def test_gateways_trust_only_the_proxy_on_its_own_network() -> None:
    assert {name for name, service in SERVICES.items() if "edge" in service.get("networks", [])} == {"proxy", "gateway"}
    assert DOCUMENT["networks"]["edge"] == {"internal": True}


def test_services_and_database_reach_no_outside_host() -> None:
    assert DOCUMENT["networks"]["inside"] == {"internal": True}
    assert DOCUMENT["networks"]["data"] == {"internal": True}
    for name in BEHIND:
        assert sorted(SERVICES[name]["networks"]) == ["data", "inside"]
    assert SERVICES["certificates"]["network_mode"] == "none"

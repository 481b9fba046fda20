"""The stack for Docker Swarm that is derived from docker-compose.yml."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # one file is read here: no reason for a package of stubs

ROOT = Path(__file__).parents[3]
UNKNOWN_TO_SWARM = {"build", "depends_on", "mem_limit", "network_mode", "pids_limit", "profiles", "restart", "tmpfs"}


def volume(text: str) -> dict[str, Any]:
    """A volume as `docker compose config` writes it."""
    source, target, *options = text.split(":")
    kind = "bind" if source.startswith(".") else "volume"
    return {"type": kind, "source": source, "target": target} | ({"read_only": True} if options == ["ro"] else {})


@pytest.fixture(scope="module")
def stack() -> dict[str, Any]:
    """What the command makes of the compose file, whose short forms are written out as Compose itself does."""
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    for service in document["services"].values():
        service["volumes"] = [volume(text) for text in service.get("volumes", ())]
        ports = [re.fullmatch(r"127\.0\.0\.1:\$\{\w+:-(\d+)\}:(\d+)", text) for text in service.get("ports", ())]
        service["ports"] = [{"published": port[1], "target": int(port[2])} for port in ports if port is not None]
    command = [sys.executable, str(ROOT / "deploy" / "make-stack"), "--gateways", "3", "--aggregations", "2", "-"]
    done = subprocess.run(command, input=json.dumps(document), capture_output=True, text=True, check=True)
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_every_service_without_profile_is_there_in_words_that_swarm_knows(stack: dict[str, Any]) -> None:
    services = stack["services"]
    assert set(services) == {
        *("postgres", "database", "certificates", "trust", "topology", "pricing", "aggregation", "gateway"),
        *("proxy", "console"),
    }
    for name, service in services.items():
        assert not UNKNOWN_TO_SWARM & set(service), name
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["deploy"]["resources"]["limits"]["memory"]


def test_replicas_take_turns_and_aggregation_stays_with_its_place(stack: dict[str, Any]) -> None:
    services = stack["services"]
    counts = {name: service["deploy"]["replicas"] for name, service in services.items()}
    assert {name: count for name, count in counts.items() if count > 1} == {"gateway": 3, "aggregation": 2}
    assert {service["deploy"]["endpoint_mode"] for service in services.values()} == {"dnsrr"}
    assert services["aggregation"]["environment"]["COTERIE_REPLICA"] == "aggregation-{{.Task.Slot}}"
    # Two processes under one name would answer for each other's updates.
    assert services["aggregation"]["deploy"]["update_config"]["order"] == "stop-first"
    assert services["gateway"]["deploy"]["update_config"]["order"] == "start-first"


def test_what_runs_once_is_not_started_for_ever_and_the_rest_is(stack: dict[str, Any]) -> None:
    policies = {name: item["deploy"]["restart_policy"]["condition"] for name, item in stack["services"].items()}
    assert {name for name, condition in policies.items() if condition == "on-failure"} == {"database", "certificates"}


def test_only_proxy_and_console_are_reachable_from_outside(stack: dict[str, Any]) -> None:
    assert {name for name, service in stack["services"].items() if service.get("ports")} == {"proxy", "console"}
    assert {name for name, network in stack["networks"].items() if not network["internal"]} == {"front"}
    assert {name for name, item in stack["services"].items() if "edge" in item["networks"]} == {"proxy", "gateway"}


def test_files_reach_every_node_and_volumes_are_all_declared(stack: dict[str, Any]) -> None:
    assert set(stack["configs"]) == {"database-users", "proxy-conf"}
    used = {m["source"] for item in stack["services"].values() for m in item.get("volumes", ()) if "source" in m}
    assert used == set(stack["volumes"])

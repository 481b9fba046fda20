"""The manifests are what Kubernetes' published schemas allow, confined, and open exactly the ways the services call."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml  # type: ignore[import-untyped]  # no reason for a package of stubs

from coterie.version import VERSION
from services.kit.rpc.rpc_permissions import ALLOWED

PLACE = Path(__file__).parents[3] / "deploy" / "kubernetes"
SERVICES = {"trust", "topology", "pricing", "aggregation", "gateway", "console", "station"}
PORTS = {"trust": 50051, "topology": 50052, "pricing": 50053, "aggregation": 50054, "gateway": 8080}
Manifest = dict[str, Any]


def built(overlay: str) -> list[Manifest]:
    """What `kubectl apply -k` would send."""
    if not shutil.which("kubectl"):
        pytest.skip("no kubectl: apt-get install kubernetes-client")
    made = subprocess.run(
        ["kubectl", "kustomize", str(PLACE / "overlays" / overlay)], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    return list(yaml.safe_load_all(made.stdout))


def containers(manifest: Manifest) -> list[Manifest]:
    pod = manifest["spec"]["template"]["spec"]
    return [*pod["containers"], *pod.get("initContainers", [])]


def workloads(manifests: list[Manifest]) -> list[Manifest]:
    return [one for one in manifests if one["kind"] in ("Deployment", "StatefulSet", "Job")]


@pytest.mark.parametrize("overlay", ["embedded", "production"])
def test_every_manifest_is_what_the_published_schemas_allow(overlay: str) -> None:
    manifests = built(overlay)
    for manifest in manifests:
        kubernetes_validate.validate(manifest, "1.30", strict=True)
    assert {one["metadata"]["name"] for one in workloads(manifests)} >= SERVICES
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**manifests[0], "kindly": 1}, "1.30", strict=True)


@pytest.mark.parametrize("overlay", ["embedded", "production"])
def test_every_container_is_confined_bounded_and_of_this_version(overlay: str) -> None:
    for workload in workloads(built(overlay)):
        pod = workload["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in containers(workload):
            held = container["securityContext"]
            assert held["allowPrivilegeEscalation"] is False
            assert held["readOnlyRootFilesystem"] is True
            assert held["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]
            assert container["image"] in (f"coterie:{VERSION}", "postgres:16")


def test_the_network_opens_the_ways_of_the_call_table_and_no_other() -> None:
    policies = list(yaml.safe_load_all((PLACE / "base" / "network.yaml").read_text()))
    by_name = {one["metadata"]["name"]: one["spec"] for one in policies}
    assert by_name["deny-all"]["podSelector"] == {}
    called = {
        (caller, method.split(".")[1]) for caller, methods in ALLOWED.items() for method in methods
    }  # /coterie_api.trust.v1.Registry/…
    for caller in ALLOWED:
        towards = {
            (peer["podSelector"]["matchLabels"]["app"], port["port"])
            for rule in by_name[caller]["egress"]
            for peer in rule.get("to", [])
            for port in rule["ports"]
        }
        assert towards == {(callee, PORTS[callee]) for who, callee in called if who == caller}
    assert "ingress" not in by_name["station"]
    for callee in ALLOWED.keys() - {"gateway", "station"} | {"trust"}:
        (rule,) = by_name[callee]["ingress"]
        assert {(peer["podSelector"]["matchLabels"]["app"], callee) for peer in rule["from"]} == {
            way for way in called if way[1] == callee
        }
        assert rule["ports"] == [{"port": PORTS[callee]}]


def test_the_secrets_are_all_the_manifests_ask_for_and_the_same_each_time(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [str(PLACE / "make-secrets"), str(tmp_path / "drawn")]
    first = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout == first
    secrets = list(yaml.safe_load_all(first))
    for secret in secrets:
        kubernetes_validate.validate(secret, "1.30", strict=True)
    made = {secret["metadata"]["name"] for secret in secrets}
    text = "".join(path.read_text() for path in PLACE.rglob("*.yaml"))
    wanted = set(re.findall(r"coterie-[a-z-]*[a-z]\b", text)) - {"coterie-blobs", "coterie-tls"}
    assert wanted == made
    assert oct((tmp_path / "drawn").stat().st_mode & 0o777) == "0o700"
    assert "authority" not in first


def test_secrets_need_the_command_and_say_so_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "deploy" / "kubernetes").mkdir(parents=True)
    script = shutil.copy(PLACE / "make-secrets", tmp_path / "deploy" / "kubernetes")
    environment = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [script, str(tmp_path / "drawn")], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "run make install first" in done.stderr
    assert not (tmp_path / "drawn").exists()
    command = tmp_path / ".venv" / "bin" / "coterie"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\necho this checkout has its own >&2\nexit 3\n")
    command.chmod(0o755)
    done = subprocess.run(
        [script, str(tmp_path / "drawn")], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stderr == "this checkout has its own\n"


def test_a_replica_keeps_its_name_over_restarts() -> None:
    (aggregation,) = (one for one in workloads(built("production")) if one["metadata"]["name"] == "aggregation")
    (container,) = containers(aggregation)
    (named,) = (one for one in container["env"] if one["name"] == "COTERIE_REPLICA")
    assert named["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert aggregation["spec"]["replicas"] == 2

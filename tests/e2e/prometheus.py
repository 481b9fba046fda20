"""A real Prometheus beside a platform, with the settings and rules of deploy/observability."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml  # type: ignore[import-untyped]  # one file is read here: no reason for a package of stubs

from coterie_cli.processes import die_with_parent, free_ports
from tests.e2e.real_platform import ROOT

PLACE = ROOT / "deploy" / "observability"
SECONDS = 60.0


def watch(browser: httpx.Client, folder: Path, ports: Mapping[str, int]) -> None:
    """Every service is read, every rule is evaluated, and none of a platform that just started raises an alert."""
    folder.mkdir()
    where = f"127.0.0.1:{free_ports(1)[0]}"
    command = ["prometheus", f"--config.file={settings(folder, ports)}", f"--storage.tsdb.path={folder / 'series'}"]
    with subprocess.Popen(
        [*command, f"--web.listen-address={where}"], stderr=subprocess.DEVNULL, preexec_fn=die_with_parent
    ) as prometheus:
        try:
            _look(browser, f"http://{where}/api/v1", ports)
        finally:
            prometheus.terminate()


def settings(folder: Path, ports: Mapping[str, int]) -> Path:
    """Those of the overlay, for services on ports of this machine instead of names in a network."""
    document = yaml.safe_load((PLACE / "prometheus.yml").read_text())
    (job,) = document["scrape_configs"]
    assert set(job.pop("dns_sd_configs")[0]["names"]) == ports.keys()
    del job["relabel_configs"]
    job["static_configs"] = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"service": name}} for name, port in ports.items()
    ]
    document["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    document["rule_files"] = [str(PLACE / "alerts.yml")]
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(document))
    return file


def _look(browser: httpx.Client, api: str, ports: Mapping[str, int]) -> None:
    def asked(path: str, **what: str) -> Any:
        try:
            return browser.get(f"{api}/{path}", params=what).json().get("data", {})
        except httpx.TransportError:
            return {}

    def value(query: str) -> float:
        return float(asked("query", query=query)["result"][0]["value"][1])

    def rules() -> list[Any]:
        return [rule for group in asked("rules").get("groups", ()) for rule in group["rules"]]

    deadline = time.monotonic() + SECONDS
    while not (
        {item["metric"]["service"]: item["value"][1] for item in asked("query", query="up").get("result", ())}
        == dict.fromkeys(ports, "1")
        and {rule["health"] for rule in rules()} == {"ok"}
    ):
        assert time.monotonic() < deadline, (asked("targets"), rules())
        time.sleep(0.2)
    assert value("sum(coterie_http_total)") > 0
    assert value('coterie_events_total{kind="task.failed"}') == 0
    assert {rule["state"] for rule in rules()} == {"inactive"}

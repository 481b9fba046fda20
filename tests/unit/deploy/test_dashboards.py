"""Dashboard and alerts name only metrics that exist; promtool agrees where it is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # a few files are read here: no reason for a package of stubs
from prometheus_client import REGISTRY

import services.aggregation.store.tasks
import services.gateway.wire.middleware
import services.kit.observability.metrics
from coterie.records import EventKind

ROOT = Path(__file__).parents[3]
PLACE = ROOT / "deploy" / "observability"
OF_PROMETHEUS = {"up", "process_resident_memory_bytes"}
LOADED = (services.aggregation.store.tasks, services.gateway.wire.middleware, services.kit.observability.metrics)
"""Modules that define metrics."""


def names() -> set[str]:
    services.kit.observability.metrics.BUILD.info({"version": "1", "commit": "a"})
    result = {sample.name for metric in REGISTRY.collect() for sample in metric.samples}
    described = {metric.name for metric in REGISTRY.collect()}
    for metric in REGISTRY.collect():
        if metric.type == "histogram":
            result |= {f"{metric.name}_bucket", f"{metric.name}_sum", f"{metric.name}_count"}
        if metric.type == "counter":
            result.add(f"{metric.name}_total")
    return result | described | OF_PROMETHEUS


def used(text: str) -> set[str]:
    return set(re.findall(r"\b(?:coterie|process)_[a-z_]+|\bup\b(?=\{)", text))


def test_every_metric_a_panel_names_exists() -> None:
    dashboard = json.loads((PLACE / "dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) >= 15
    for expression in expressions:
        assert used(expression), expression
        assert used(expression) <= names(), expression


def test_every_metric_an_alert_names_exists() -> None:
    text = (PLACE / "alerts.yml").read_text()
    assert used(text) <= names() | {"coterie"}
    assert text.count("- alert:") == text.count("action:")


def test_every_metric_of_ours_stands_on_a_panel() -> None:
    text = (PLACE / "dashboard.json").read_text()
    ours = {m.name for m in REGISTRY.collect() if m.name.startswith("coterie_")}
    assert not [name for name in ours if name not in text]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here: apt-get install prometheus")
def test_promtool_takes_the_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(PLACE / "alerts.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried() -> None:
    rules = yaml.safe_load((PLACE / "alerts.yml").read_text())["groups"][0]["rules"]
    cases = yaml.safe_load((PLACE / "alerts-test.yml").read_text())["tests"]
    raised = {item["alertname"] for case in cases for item in case["alert_rule_test"] if item["exp_alerts"]}
    assert raised == {rule["alert"] for rule in rules}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here: apt-get install prometheus")
@pytest.mark.parametrize("what", ["test rules alerts-test.yml", "check config --syntax-only prometheus.yml"])
def test_promtool_raises_the_alerts_and_takes_the_settings(what: str) -> None:
    done = subprocess.run(["promtool", *what.split()], cwd=PLACE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_failed_task_is_counted_from_zero() -> None:
    """Prometheus sees an increase only where there was a value before."""
    (counted,) = services.kit.observability.metrics.EVENTS_TOTAL.collect()
    assert set(EventKind) <= {sample.labels.get("kind") for sample in counted.samples}


def test_the_overlay_fits_the_compose_file() -> None:
    """Services it opens metrics ports on are there, networks too, and every file it mounts."""
    base, overlay = (yaml.safe_load(path.read_text()) for path in (ROOT / "docker-compose.yml", PLACE / "compose.yml"))
    added = {"prometheus", "grafana", "jaeger"}
    assert overlay["services"].keys() - added <= base["services"].keys()
    scraped = yaml.safe_load((PLACE / "prometheus.yml").read_text())["scrape_configs"][0]["dns_sd_configs"][0]
    assert set(scraped["names"]) == overlay["services"].keys() - added
    for name in scraped["names"]:
        environment = overlay["services"][name]["environment"]
        assert environment["COTERIE_METRICS_PORT"] == str(scraped["port"])
        assert name == "console" or environment["COTERIE_OTLP_ENDPOINT"] == "http://jaeger:4318"
        assert set(base["services"][name]["networks"]) & set(overlay["services"]["prometheus"]["networks"])
    for name in added:
        service = overlay["services"][name]
        assert set(service["networks"]) <= base["networks"].keys()
        for source in (mount.split(":")[0] for mount in service.get("volumes", ())):
            assert source in overlay["volumes"] or (ROOT / source).is_file(), source
    dashboards = {target["uid"] for target in _datasources(json.loads((PLACE / "dashboard.json").read_text()))}
    known = {item["uid"] for item in yaml.safe_load((PLACE / "grafana.yml").read_text())["datasources"]}
    assert dashboards <= known


def _datasources(document: object) -> list[dict[str, str]]:
    if isinstance(document, dict):
        own = [document["datasource"]] if isinstance(document.get("datasource"), dict) else []
        return own + [datasource for value in document.values() for datasource in _datasources(value)]
    return (
        [datasource for value in document for datasource in _datasources(value)] if isinstance(document, list) else []
    )

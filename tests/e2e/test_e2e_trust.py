"""The registry over real processes: imports that survive a kill, explanations, and trust lost by garbage."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from typer.testing import CliRunner

from coterie.agent.agent import Agent
from coterie.agent.home import DeviceHome
from coterie.agent.registration import register_device
from coterie.agent.report import Delivery
from coterie.client.trust import Meeting
from coterie.strategies.context import RoundContext
from coterie_cli.main import app
from coterie_lab.main import app as lab
from tests.e2e.device_group import NO_PAUSE, SAMPLES, DeviceGroup, Seeded, Shift
from tests.e2e.real_platform import RealPlatform

HONEST_ROUNDS, ROUNDS = 2, 4


def coterie(platform: RealPlatform, *arguments: str) -> Any:
    """What a command prints with --json."""
    where = ["--url", platform.processes.url, "--key", platform.processes.admin_key(), "--json"]
    result = CliRunner().invoke(app, [*arguments, *where], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_an_import_goes_on_after_the_registry_was_killed_and_is_explained(
    shared_platform: RealPlatform, tmp_path: Path
) -> None:
    """A ring of 300 and a chord; half of it is stored when the registry dies."""
    ties = [*((k, (k + 1) % 300) for k in range(300)), (0, 150)]
    rows = tmp_path / "ring.ndjson"
    header = {"name": "ring", "owner_name": "ring"}
    act = {"positive": True, "duration_seconds": 3600.0, "at": 1_700_000_000.0}
    lines = [
        {"line": n, "interaction": {"device_a": f"ring-{a}", "device_b": f"ring-{b}", **act}}
        for n, (a, b) in enumerate(ties, start=1)
    ]
    rows.write_text("\n".join(json.dumps(line) for line in [header, *lines[:150]]))
    assert coterie(shared_platform, "trust", "import", str(rows), "--format", "rows")["last_line"] == 150
    shared_platform.kill("trust")
    shared_platform.restart("trust")
    rows.write_text("\n".join(json.dumps(line) for line in [header, *lines]))
    result = coterie(shared_platform, "trust", "import", str(rows), "--format", "rows")
    assert (result["last_line"], result["devices"], result["interactions"]) == (301, 300, 301)
    moment = "2023-11-14T22:13:20+00:00"
    explained = coterie(shared_platform, "trust", "explain", "ring-0", "ring-149", "--at", moment)
    assert (explained["direct"], len(explained["path"])) == (0.0, 2)
    assert explained["indirect"] == pytest.approx(1 / 36)  # one good meeting each, over 1 + κ
    assert "The best shortest chain has 0.167 × 0.167" in explained["text"]
    entries = list(islice(shared_platform.admin.audit(), 20))
    assert "trust.read" in {entry.act for entry in entries}  # an admin looked at a personal tie


class Turncoat(Seeded):
    """Honest for a while, then numbers that are none."""

    def prepare(self, context: RoundContext) -> Delivery:
        delivery = super().prepare(context)
        if context.work.round <= HONEST_ROUNDS:
            return delivery
        assert delivery.tensors is not None
        nothing = {name: np.full_like(value, np.nan) for name, value in delivery.tensors.items()}
        return Delivery(nothing, delivery.weight)


def _agent(platform: RealPlatform, home: Path, name: str) -> Agent:
    strategy = (Turncoat if name == "quinn" else Seeded)(name, NO_PAUSE)
    return Agent(home, samples=SAMPLES, cache=platform.cache, poll_seconds=1.0, choose=lambda work: strategy)


def test_device_that_delivers_garbage_loses_its_trust_and_sees_why(
    shared_platform: RealPlatform,
) -> None:
    admin = shared_platform.admin
    device_group = DeviceGroup(shared_platform, ("nina", "otto", "pam", "quinn"))
    task = shared_platform.create_task("turning", rounds=ROUNDS, min_devices=3, quorum=0.7, auto_start=False)
    agents = [_agent(shared_platform, home.folder, name) for name, home in device_group.homes.items()]
    shift = Shift(shared_platform, agents, task)
    shared_platform.wait_until(lambda: admin.task(task).enrolled == 4)
    admin.start_task(task)
    shift.wait()
    shared_platform.final_model(task)

    honest = coterie(shared_platform, "trust", "show", "nina", "otto")
    garbage = coterie(shared_platform, "trust", "explain", "nina", "quinn")
    assert honest["direct"] == pytest.approx(4 / 9, abs=1e-3)  # four rounds, and κ = 5
    assert (garbage["direct"], garbage["positive_count"], garbage["negative_count"]) == (0.0, 2, 2)
    assert "the bad outweighs the good and direct trust is 0" in garbage["text"]
    course = [point["direct"] for point in coterie(shared_platform, "trust", "history", "nina", "quinn")]
    assert max(course) == pytest.approx(2 / 7, abs=1e-3)
    assert course[-1] == 0.0
    quinn = agents[-1].identity.id
    losses = coterie(shared_platform, "trust", "losses", "--device", quinn)
    assert all(quinn in (loss["device_a"], loss["device_b"]) for loss in losses)
    assert len(losses) == 3
    assert {act["kind"] for loss in losses for act in loss["because"]} == {"rejected"}
    graph = coterie(shared_platform, "trust", "graph", "--task", task)
    assert len(graph["ties"]) == 3
    assert quinn not in {end for tie in graph["ties"] for end in (tie["device_a"], tie["device_b"])}


def test_meetings_and_friendship_count_when_both_sides_say_so(shared_platform: RealPlatform, tmp_path: Path) -> None:
    """Over REST with the devices' own keys, and by the command line with the same."""
    admin = shared_platform.admin
    homes, owners = [], []
    for name in ("Ruth", "Saul"):
        owners.append(admin.create_owner(name).id)
        homes.append(DeviceHome(tmp_path / name))
        token = admin.issue_token(owners[-1]).token
        register_device(homes[-1], shared_platform.processes.url, token, name=f"{name}-phone")
    keys = [home.identity() for home in homes]
    assert keys[0] is not None
    assert keys[1] is not None
    ruth, saul = keys[0].id, keys[1].id

    def as_device(key: str, *arguments: str) -> Any:
        where = ["--url", shared_platform.processes.url, "--key", key, "--json"]
        result = CliRunner().invoke(app, [*arguments, *where], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    met = Meeting(saul, time.time() - 60.0, 240.0)
    with shared_platform.as_device(homes[0]) as device:
        assert device.report_meetings(ruth, [met]).unconfirmed == 1
        assert device.report_meetings(ruth, [met]).repeated_before == 1
    listed = as_device(keys[0].api_key, "trust", "interactions", ruth, "--unconfirmed")
    assert [(item["state"], item["device_b"] in (ruth, saul)) for item in listed] == [("unconfirmed", True)]
    assert coterie(shared_platform, "trust", "explain", ruth, saul)["unconfirmed_count"] == 1
    with shared_platform.as_device(homes[1]) as device:
        assert device.report_meetings(saul, [replace(met, other=ruth, at=met.at + 30.0)]).unconfirmed == 0
    explained = coterie(shared_platform, "trust", "explain", "Ruth-phone", "Saul-phone")
    assert (explained["unconfirmed_count"], explained["positive_count"]) == (0, 1)
    assert explained["direct"] == pytest.approx(1 / 6, abs=1e-4)
    assert explained["rule"]["prior_weight"] == 5.0

    declared = as_device(keys[0].api_key, "trust", "befriend", owners[0], owners[1], "--strength", "0.5")
    assert not declared["confirmed"]
    (waiting,) = as_device(keys[1].api_key, "trust", "friends", owners[1])
    assert (waiting["confirmed"], waiting["because"]) == (False, "waits for this owner")
    assert as_device(keys[1].api_key, "trust", "befriend", owners[1], owners[0])["confirmed"]
    # One meeting, and five worth 0.8 · 0.5.
    assert coterie(shared_platform, "trust", "show", ruth, saul)["direct"] == pytest.approx((1 + 5 * 0.4) / 6, abs=1e-3)
    assert not as_device(keys[0].api_key, "trust", "unfriend", owners[0], owners[1])["confirmed"]
    assert as_device(keys[1].api_key, "trust", "friends", owners[1]) == []


GUIDE = Path(__file__).parents[2] / "docs" / "explanation" / "trust.md"


def test_the_guides_commands_run_as_printed(
    shared_platform: RealPlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but those that need files of others, another shell or a running server."""
    monkeypatch.chdir(tmp_path)
    text = GUIDE.read_text()
    (table,) = re.findall(r"```csv\n(.*?)```", text, re.DOTALL)
    Path("meetings.csv").write_text(table)
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    commands = [line.split()[1:] for line in blocks.splitlines() if line.startswith("coterie ")]
    runnable = [command for command in commands if not {"facebook_combined.txt.gz", "facebook-0", "own_…"} & {*command}]
    assert len(runnable) >= 12
    for line in blocks.splitlines():
        if line.startswith("lab rows city"):
            words, _, file = line.partition(" > ")
            printed_rows = CliRunner().invoke(lab, words.split()[1:], catch_exceptions=False)
            Path(file).write_text(printed_rows.stdout)
    where = ["--url", shared_platform.processes.url, "--key", shared_platform.processes.admin_key()]
    for command in runnable:
        result = CliRunner().invoke(app, [*command, *where], env={"COLUMNS": "1000"}, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        if command[:2] == ["trust", "explain"]:
            printed = " ".join(result.stdout.splitlines()[0].split())
            assert printed in " ".join(text.split())
    assert nx.node_link_graph(json.loads(Path("ties.json").read_text()), edges="links").number_of_nodes()
    assert nx.read_graphml("ties.graphml").number_of_edges()

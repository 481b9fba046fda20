"""`coterie trust` before a platform that answers from a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coterie.client import Platform
from coterie.errors import NotAllowed, NotFound
from coterie.records import Device, Interaction, Relation, Task, TrustExplanation
from coterie_cli.commands import trust
from coterie_cli.console import Mistake
from tests.answers import made

NAMES = {"dev_1": "phone", "dev_2": "lamp", "dev_3": "watch", "dev_4": "twin", "dev_5": "twin"}
EXPLANATION = {
    "device_a": "dev_1", "device_b": "dev_3", "at": 1_700_000_000.0, "direct": 0.0, "indirect": 0.5, "trust": 0.1,
    "positive_count": 0, "negative_count": 0, "positive_sum": 0.0, "negative_sum": 0.0, "last_at": 0.0,
    "path": [
        {"from_device": "dev_1", "to_device": "dev_2", "direct": 1.0},
        {"from_device": "dev_2", "to_device": "dev_3", "direct": 0.5},
    ],
    "relations": [{"kind": "ownership", "a": "dev_1", "b": "dev_3", "strength": 1.0, "because": "both are Ada's",
                   "since": 1_700_000_000.0}],
    "text": "phone and watch trust each other 0.100.",
}  # fmt: skip
BAD_ACT = made(Interaction, kind="rejected", at=1_700_000_000.0, note="round 4 of tsk_1").to_dict()
GRAPH = {
    "devices": [made(Device, id=i, name=n).to_dict() for i, n in NAMES.items()],
    "ties": [{"device_a": "dev_1", "device_b": "dev_2", "direct": 0.25, "relations": ["social", "parental"]}],
    "at": 1.0,
}
ANSWERS: dict[str, Any] = {
    "/v1/trust/pairs/dev_1/dev_3": EXPLANATION,
    "/v1/trust/pairs/dev_1/dev_3/history": {
        "items": [{"at": 1_700_000_000.0 + k, "direct": k / 40, "count": k} for k in range(41)]
    },
    "/v1/trust/peers/dev_1": {"items": [{"device_id": "dev_2", "direct": 0.9, "indirect": 0.9, "trust": 0.9}]},
    "/v1/trust/losses": {
        "items": [{"device_a": "dev_1", "device_b": "dev_2", "before": 0.8, "after": 0.1, "because": [BAD_ACT] * 5},
                  {"device_a": "dev_1", "device_b": "dev_9", "before": 0.8, "after": 0.7, "because": []}]
    },
    "/v1/trust/relations/derive": {"counts": {"social": 2, "co-work": 1}},
}  # fmt: skip


class Stand(Platform):
    """A platform that records its requests."""

    def __init__(self) -> None:
        super().__init__("http://stand")
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.admin = True

    def find_task(self, id_or_name: str) -> Task:
        return made(Task, id=f"tsk_of_{id_or_name}")

    def devices(self, *, owner: str = "", state: str = "") -> Iterator[Device]:
        if not self.admin:
            raise NotAllowed("this is open to admin", status=403)
        yield from (made(Device, id=i, name=n) for i, n in NAMES.items())

    def device(self, device_id: str) -> Device:
        if device_id not in NAMES:
            raise NotFound("no such device", status=404)
        return made(Device, id=device_id, name=NAMES[device_id])

    def relations(self, device_id: str) -> Iterator[Relation]:
        yield from TrustExplanation.from_json(EXPLANATION).relations * 3

    def request(self, method: str, path: str, *, consume: Any = None, **options: Any) -> Any:
        self.requests.append((path, options.get("params", {})))
        if consume is not None:
            graph = b"<graphml/>" if options["params"]["format"] == "graphml" else json.dumps(GRAPH).encode()
            return consume(type("Answer", (), {"read": lambda self: graph})())
        return ANSWERS[path]


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    stand = Stand()
    monkeypatch.setattr(trust, "connect", lambda url, key: stand)
    return stand


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(trust.app, list(arguments), env={"COLUMNS": "250"}, catch_exceptions=False)
    return result.exit_code, result.stdout


def test_explanation_has_text_and_path(stand: Stand) -> None:
    code, text = run("explain", "phone", "watch", "--at", "2026-01-01T00:00+00:00")
    assert code == 0
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "phone and watch trust each other 0.100."
    assert "phone lamp 1.000" in lines
    assert "lamp watch 0.500" in lines
    assert any(line.startswith("ownership 1.000") and line.endswith("both are Ada's") for line in lines)
    assert stand.requests == [("/v1/trust/pairs/dev_1/dev_3", {"at": 1_767_225_600.0})]


def test_show_gives_three_numbers_and_json_the_same(stand: Stand) -> None:
    text = run("show", "phone", "dev_3")[1]
    assert [line.split() for line in text.splitlines()[2:]] == [
        ["direct", "0.000"],
        ["indirect", "0.500"],
        ["combined", "0.100"],
    ]
    result = json.loads(run("show", "dev_1", "watch", "--json")[1])
    assert (result["direct"], result["indirect"], result["trust"]) == (0.0, 0.5, 0.1)
    assert "path" not in result


def test_peers_and_relations_go_by_name(stand: Stand) -> None:
    assert "lamp    0.900" in run("peers", "phone")[1]
    assert run("relations", "phone", "--limit", "2")[1].count("watch") == 2
    assert len(json.loads(run("relations", "phone", "--limit", "0", "--json")[1])) == 3


def test_a_history_is_a_line_of_bars_and_a_dozen_rows_to_the_last(stand: Stand) -> None:
    lines = run("history", "phone", "watch")[1].splitlines()
    assert lines[0][0] == trust.NO_TRUST
    assert (lines[0][1], lines[0][-1], len(lines[0])) == ("▁", "█", 41)
    assert len(lines) <= 3 + trust.HISTORY_ROWS
    assert lines[-1].split()[-2:] == ["1.000", "40"]


def test_losses_name_their_causes(stand: Stand) -> None:
    text = run("losses", "--device", "phone")[1]
    assert stand.requests[0] == ("/v1/trust/losses", {"since": 0.0, "limit": 20, "device": "dev_1"})
    assert "round 4 of tsk_1" in text
    assert "and 2 more" in text
    assert "dev_9" in text  # a device whose name is hidden appears by its id
    assert "time alone" in text


def test_a_graph_is_shown_or_written_as_asked(stand: Stand, tmp_path: Path) -> None:
    text = run("graph", "--task", "digits")[1]
    assert "5 devices, 1 ties" in text
    assert "phone   lamp   0.250" in text
    assert stand.requests[0][1]["task"] == "tsk_of_digits"
    assert run("graph", "--owner", "own_1", "--format", "graphml", "--out", str(tmp_path / "g"))[0] == 0
    assert (tmp_path / "g").read_bytes() == b"<graphml/>"
    assert stand.requests[1][1] | {"at": 0} == {"owner": "own_1", "least": 0.0, "at": 0, "format": "graphml"}
    assert json.loads(run("graph", "--json")[1]) == GRAPH
    assert json.loads(run("graph", "--format", "node-link")[1]) == GRAPH
    assert stand.requests[3][1]["format"] == "node-link"
    with pytest.raises(Mistake, match="--format json, graphml or node-link"):
        run("graph", "--format", "table", "--out", "x")


def test_relations_are_derived_on_demand(stand: Stand) -> None:
    assert json.loads(run("derive", "--json")[1]) == {"social": 2, "co-work": 1}


def test_name_must_match_one_device(stand: Stand) -> None:
    with pytest.raises(Mistake, match="no device is called 'kettle'"):
        run("show", "kettle", "phone")
    with pytest.raises(Mistake, match="2 devices are called 'twin'; give one of the ids dev_4, dev_5"):
        run("show", "twin", "phone")
    stand.admin = False
    with pytest.raises(Mistake, match="only admins look devices up by name"):
        run("show", "phone", "lamp")
    assert run("show", "dev_1", "dev_3")[0] == 0


@pytest.mark.parametrize(
    ("values", "bars"), [([], ""), ([0.0, 1e-9, 0.5, 0.999, 1.0], "·▁▅██"), ([0.124, 0.126], "▁▂")]
)
def test_bars_show_trust_and_its_absence(values: list[float], bars: str) -> None:
    assert trust.sparkline(values) == bars

"""Plans drawn: the graph behind the picture, the picture, and what cannot be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from rich.console import Console

from coterie.records import Assignment, Neighbour, Plan
from coterie_cli.commands.plans import plan_table
from coterie_cli.drawing import CannotDraw, draw_plan, plan_graph
from tests.answers import made


def assignment(name: str, role: str = "peer", **values: Any) -> Assignment:
    return made(Assignment, device_id=name, role=role, group=-1, batch_size=32, because="x", **values)


def neighbour(name: str, trusted: bool) -> Neighbour:
    return Neighbour(device_id=name, weight=0.25, trusted=trusted, link_seconds=0.5)


def plan(topology: str, assignments: Sequence[Assignment]) -> Plan:
    details = {"names": {"a": "ada's phone"}}
    return made(
        Plan, task_id="tsk_1", version=2, topology=topology, assignments=assignments, round_seconds=3.5, details=details
    )


MESH = plan(
    "mesh",
    [
        assignment("a", neighbours=[neighbour("b", True)]),
        assignment("b", neighbours=[neighbour("a", True), neighbour("c", False)], noised=True),
        assignment("c", neighbours=[neighbour("b", False)], noised=True),
    ],
)


def test_a_meshs_graph_has_each_link_once_with_what_travels_over_it() -> None:
    graph = plan_graph(MESH)
    assert {frozenset(pair) for pair in graph.edges} == {frozenset("ab"), frozenset("bc")}
    assert graph.edges["a", "b"]["trusted"]
    assert not graph.edges["b", "c"]["trusted"]
    assert graph.nodes["a"]["label"] == "ada's phone"
    assert graph.nodes["c"]["noised"]


def test_members_are_linked_to_their_head_and_heads_to_the_platform() -> None:
    clusters = plan(
        "clusters", [assignment("h", "head"), assignment("m", "member", head_device_id="h"), assignment("i", "idle")]
    )
    graph = plan_graph(clusters)
    assert {frozenset(pair) for pair in graph.edges} == {frozenset(("m", "h")), frozenset(("h", "platform"))}
    assert "i" in graph


def test_graphml_can_be_read_back(tmp_path: Path) -> None:
    draw_plan(MESH, tmp_path / "plan.graphml")
    again = nx.read_graphml(tmp_path / "plan.graphml")
    assert set(again.nodes) == {"a", "b", "c"}
    assert again.edges["b", "c"]["seconds"] == 0.5


@pytest.mark.parametrize(
    "assignments",
    [MESH.assignments, [assignment("a")], [assignment("a"), assignment("b")]],
    ids=["three", "one", "apart"],
)
def test_a_picture_is_drawn_of_any_mesh(tmp_path: Path, assignments: Sequence[Assignment]) -> None:
    draw_plan(plan("mesh", assignments), tmp_path / "plan.png")
    content = (tmp_path / "plan.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 5_000


def test_other_files_are_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(CannotDraw, match=r"\.png, \.svg, \.pdf or \.graphml"):
        draw_plan(MESH, tmp_path / "plan.docx")


def test_mesh_table_lists_links_with_step_and_score() -> None:
    printed = replace(
        MESH,
        assignments=tuple(replace(item, self_weight=0.75) for item in MESH.assignments),
        details={
            "names": {"a": "ada", "b": "bob", "c": "cy"},
            "links": [
                {"between": ["a", "b"], "step": "CAS", "score": 5.0, "trusted": True, "seconds": 0.004654},
                {"between": ["b", "c"], "step": "NAS", "score": None, "trusted": False, "seconds": 8.96},
            ],
            "noised": ["b", "c"],
            "hitting_time": 12.0,
            "spectral_gap": 0.25,
            "pseudo_training_time": 36.0,
            "baselines": {"ring": {"round_seconds": 9.0, "pseudo_training_time": 99.0, "noised": 3.0}},
        },
    )
    console = Console(width=140, record=True, file=StringIO())
    console.print(plan_table(printed))
    text = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert "plan 2 (mesh): a round takes 3.5 s as planned, hitting time 12, spectral gap 0.25" in text
    assert "bob b 2 32 0.750 adds noise" in text
    assert "ada–bob CAS 5 yes 0.004654 s" in text
    assert "bob–cy NAS – no 8.96 s" in text
    assert "this plan 3.5 s 36 2" in text
    assert "ring 9 s 99 3" in text
